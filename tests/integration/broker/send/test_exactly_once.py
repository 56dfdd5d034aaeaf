"""A broker stores the messages of a lane once, whatever is tried again and whatever stops in between (D2)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

from cometmq.broker.send.exactly_once import OnceTable
from cometmq.ports.disk import SystemDisk
from cometmq.store.tables.files import ConfigFile
from cometmq.wire.codes import ResponseCode
from cometmq.wire.exactly_once import (
    NO_BATCH,
    OwnRequestCode,
    SendOnceRequest,
    SendOnceResponse,
    StandingRequest,
    StandingResponse,
)
from cometmq.wire.header.schema import decode_fields
from cometmq.wire.record.batch import BatchItem, encode_batch
from cometmq.wire.record.properties import encode_properties, format_properties
from tests.answers import Told
from tests.integration.broker.broker_kit import BORN_MS, BrokerKit, running_broker
from tests.waiting import eventually

TOPIC = "Once"
SYNC = {"flushDiskType": "SYNC_FLUSH"}


class Writer:
    """A writer of one partition, with its digest."""

    def __init__(self, kit: BrokerKit, query: str = "q", partition: int = 0) -> None:
        self.kit = kit
        self.query = query
        self.partition = partition

    async def standing(self) -> tuple[int, int]:
        header = StandingRequest(topic=TOPIC, query=self.query, partition=self.partition)
        told = await self.kit.ok(OwnRequestCode.GET_STANDING, header)
        found = decode_fields(StandingResponse, told.fields)
        return found.batch, found.next_sequence

    async def send(
        self, batch: int, first: int, bodies: list[bytes], before: list[bytes] | None = None
    ) -> Told:
        items = encode_batch(BatchItem(body, encode_properties({"UNIQ_KEY": "K"})) for body in bodies)
        earlier = before if before is not None else [b"%d" % number for number in range(first)]
        digest = crc32(
            encode_batch(BatchItem(body, encode_properties({"UNIQ_KEY": "K"})) for body in earlier)
        )
        return await self.kit.call(
            OwnRequestCode.SEND_ONCE,
            self.header(batch, first, len(bodies), digest, crc32(items, digest)),
            items,
        )

    def header(
        self, batch: int, first: int, count: int, before: int, after: int, **fields: object
    ) -> SendOnceRequest:
        values: dict[str, object] = {
            "queue_id": 0,
            "properties": format_properties({"WAIT": "true"}),
            **fields,
        }
        return SendOnceRequest(
            producer_group="spark",
            topic=TOPIC,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            born_timestamp=BORN_MS,
            query=self.query,
            partition=self.partition,
            batch=batch,
            first_sequence=first,
            count=count,
            digest_before=before,
            digest_after=after,
            shards=4,
            **values,  # type: ignore[arg-type]
        )

    async def stored(self, batch: int, first: int, end: int) -> int:
        """Send the messages with these numbers, whose bodies are their numbers; how many were stored."""
        told = await self.send(batch, first, [b"%d" % number for number in range(first, end)])
        assert told.code == 0, told
        return decode_fields(SendOnceResponse, told.fields).stored

    def bodies(self) -> list[bytes]:
        return [bytes(record.body) for record in self.kit.stored(TOPIC)]


async def test_what_a_lane_has_is_not_stored_again() -> None:
    async with running_broker() as kit:
        writer = Writer(kit)
        assert await writer.standing() == (NO_BATCH, 0)
        assert await writer.stored(0, 0, 3) == 3
        assert await writer.stored(0, 0, 3) == 0
        assert await writer.stored(0, 3, 5) == 2
        assert await writer.standing() == (0, 5)
        assert writer.bodies() == [b"0", b"1", b"2", b"3", b"4"]


async def test_of_a_request_that_is_there_in_part_the_rest_is_stored() -> None:
    """A writer may cut its messages into other requests when it tries again."""
    async with running_broker() as kit:
        writer = Writer(kit)
        await writer.standing()
        assert await writer.stored(0, 0, 3) == 3
        assert await writer.stored(0, 1, 6) == 3
        assert writer.bodies() == [b"%d" % number for number in range(6)]


async def test_a_gap_is_not_stored_and_the_writer_sees_where_the_lane_stands() -> None:
    async with running_broker() as kit:
        writer = Writer(kit)
        await writer.standing()
        assert await writer.stored(0, 0, 2) == 2
        assert await writer.stored(0, 3, 4) == 0
        assert await writer.stored(1, 1, 2) == 0
        assert await writer.standing() == (0, 2)
        assert writer.bodies() == [b"0", b"1"]


async def test_a_later_batch_begins_at_0_and_nothing_of_an_earlier_one_is_stored_any_more() -> None:
    async with running_broker() as kit:
        writer = Writer(kit)
        await writer.standing()
        assert await writer.stored(0, 0, 2) == 2
        assert await writer.stored(1, 0, 1) == 1
        assert await writer.stored(0, 2, 3) == 0
        assert await writer.standing() == (1, 1)
        assert writer.bodies() == [b"0", b"1", b"0"]


async def test_lanes_of_other_queries_and_partitions_are_others() -> None:
    async with running_broker() as kit:
        writers = [Writer(kit), Writer(kit, "other"), Writer(kit, "q", 1)]
        for writer in writers:
            await writer.standing()
            assert await writer.stored(7, 0, 2) == 2
        assert len(writers[0].bodies()) == 6


async def test_another_order_in_front_is_refused_with_what_to_do() -> None:
    async with running_broker() as kit:
        writer = Writer(kit)
        await writer.standing()
        assert await writer.stored(0, 0, 2) == 2
        told = await writer.send(0, 2, [b"x"], before=[b"1", b"0"])
        assert told.code == ResponseCode.ILLEGAL_OPERATION
        assert "in topic Once" in (told.remark or "")
        assert "sort them" in (told.remark or "")
        assert writer.bodies() == [b"0", b"1"]


async def test_a_refused_message_leaves_the_lane_where_it_is() -> None:
    async with running_broker(settings={"autoCreateTopicEnable": "false"}) as kit:
        writer = Writer(kit)
        await writer.standing()
        told = await writer.send(0, 0, [b"x"])
        assert told.code == ResponseCode.TOPIC_NOT_EXIST
        assert await writer.standing() == (NO_BATCH, 0)


async def test_a_writer_has_to_ask_first() -> None:
    """Because nothing is taken before the broker has put down that there are such messages."""
    async with running_broker() as kit:
        told = await Writer(kit).send(0, 0, [b"x"])
        assert told.code == ResponseCode.ILLEGAL_OPERATION
        assert "ask for the state of the writer sequence" in (told.remark or "")


async def test_a_delayed_message_counts_once_although_it_is_in_the_log_twice(tmp_path: Path) -> None:
    properties = {"DELAY": "1", "UNIQ_KEY": "K"}
    settings = {"messageDelayLevel": "1s 2s"}
    async with running_broker(tmp_path, settings) as kit:
        writer = Writer(kit)
        await writer.standing()
        header = writer.header(0, 0, 1, 0, 5, single=True, properties=format_properties(properties))
        assert (await kit.ok(OwnRequestCode.SEND_ONCE, header, b"later")).fields["stored"] == "1"
        await eventually(lambda: writer.bodies() == [b"later"], "the delayed message is delivered")
        await kit.embedded.stop_broker()
        forget_what_was_saved(tmp_path)
        await kit.embedded.start()
        assert await writer.standing() == (0, 1)


def forget_what_was_saved(folder: Path) -> None:
    """Have the next start read the whole log."""
    path = folder / "store" / "config"
    ConfigFile(SystemDisk(), path, OnceTable).save(OnceTable(0))


async def test_lanes_are_known_after_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as kit:
        writer = Writer(kit)
        await writer.standing()
        assert await writer.stored(3, 0, 4) == 4
        await kit.embedded.restart()
        assert await writer.standing() == (3, 4)
        assert await writer.stored(3, 2, 6) == 2
        assert writer.bodies() == [b"%d" % number for number in range(6)]


async def test_lanes_that_were_not_saved_are_read_from_the_log(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as kit:
        writer = Writer(kit)
        await writer.standing()
        await kit.send(TOPIC)
        assert await writer.stored(3, 0, 4) == 4
        await kit.send(TOPIC)
        assert await writer.stored(3, 4, 5) == 1
        await kit.embedded.stop_broker()
        forget_what_was_saved(tmp_path)
        await kit.embedded.start()
        assert await writer.standing() == (3, 5)
        assert await writer.stored(3, 5, 6) == 1  # with the digest that was before


async def test_a_table_that_tells_of_more_log_than_there_is_counts_for_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as kit:
        writer = Writer(kit)
        await writer.standing()
        assert await writer.stored(0, 0, 4) == 4
        await kit.embedded.stop_broker()
        path = tmp_path / "store" / "config"
        ConfigFile(SystemDisk(), path, OnceTable).save(OnceTable(10**9))
        await kit.embedded.start()
        assert await writer.standing() == (0, 4)


async def test_with_synchronous_flush_what_is_there_is_told_when_it_is_safe() -> None:
    async with running_broker(settings=SYNC) as kit:
        writer = Writer(kit)
        await writer.standing()
        assert await writer.stored(0, 0, 2) == 2
        assert await writer.stored(0, 0, 2) == 0
        assert await writer.standing() == (0, 2)


async def test_a_copy_of_such_a_message_is_an_ordinary_message() -> None:
    """A program that passes on all properties of what it read must not find its messages gone."""
    async with running_broker() as kit:
        writer = Writer(kit)
        await writer.standing()
        assert await writer.stored(0, 0, 1) == 1
        properties: Mapping[str, str] = kit.stored(TOPIC)[0].properties()
        assert properties["__ONCE"].startswith("q:0:0:0:1:")
        for _ in range(3):
            assert (await kit.send(TOPIC, properties=properties)).code == 0
        assert len(writer.bodies()) == 4
        assert "__ONCE" not in kit.stored(TOPIC)[-1].properties()
