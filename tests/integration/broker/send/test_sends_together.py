"""Sends that arrive together: each is stored and answered as if it had come alone (B6, B7)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cometmq.broker.send.send import MessageSender
from cometmq.model.names import TRANS_HALF_TOPIC
from cometmq.remoting.connection import Connection
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import ONEWAY_FLAG, Command, decode_command, encode_command
from cometmq.wire.frame.framing import ROCKETMQ, FrameSplitter
from cometmq.wire.headers.send import SendMessageRequestV2
from tests.answers import Told, told
from tests.integration.broker.broker_kit import PATIENCE_S, BrokerKit, running_broker, send_header
from tests.waiting import eventually

Send = tuple[str, Mapping[str, str], Mapping[str, object]]


def plain(number: int, topic: str = "Orders", **fields: object) -> Send:
    properties = {"KEYS": f"order-{number}", "UNIQ_KEY": f"{number:032X}", "WAIT": "true", "TAGS": "paid"}
    return topic, properties, {"queue_id": number % 4, **fields}


def half(number: int, topic: str = "Orders") -> Send:
    """A message of a transaction."""
    properties = {"UNIQ_KEY": f"{number:032X}", "WAIT": "true", "TRAN_MSG": "true", "PGROUP": "payers"}
    return topic, properties, {"queue_id": number % 4, "sys_flag": 1 << 2}


def frame(number: int, send: Send, flag: int = 0) -> bytes:
    topic, properties, fields = send
    header = send_header(topic, properties, **fields)
    return encode_command(RequestCode.SEND_MESSAGE_V2, number, flag, header, body=b"body-%d" % number)


async def send_together(kit: BrokerKit, data: bytes, answers: int) -> dict[int, Told]:
    """Write everything at once, and wait for so many answers; they are given by opaque."""
    host, _, port = kit.embedded.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    splitter = FrameSplitter()
    found: dict[int, Told] = {}
    try:
        writer.write(data)
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < answers:
                splitter.feed(await reader.read(1 << 16))
                while (got := splitter.next_frame()) is not None:
                    command = decode_command(got)
                    found[command.opaque] = told(command)
    finally:
        writer.close()
        await writer.wait_closed()
    return found


async def send_alone(kit: BrokerKit, sends: Sequence[Send]) -> dict[int, Told]:
    return {
        number: await kit.send(topic, b"body-%d" % number, properties, **fields)
        for number, (topic, properties, fields) in enumerate(sends)
    }


def without_place(answers: dict[int, Told]) -> list[tuple[int, int, Mapping[str, str | None]]]:
    """What two brokers say alike: everything but the ids and remarks with their and our addresses in them."""
    return [
        (number, answer.code, {key: text for key, text in answer.fields.items() if key != "msgId"})
        for number, answer in sorted(answers.items())
    ]


def taken(kit: BrokerKit) -> dict[tuple[str, str], tuple[int, int]]:
    """How many messages of each topic and kind were counted, and how large they were together."""
    sizes = kit.broker.context.traffic.sizes
    return {key: (sum(found.counts), round(found.total)) for key, found in sizes.items()}


SENDS = [
    *(plain(number) for number in range(12)),
    plain(12, queue_id=99),
    plain(13, "Bills"),
    plain(14, "NoSuchTopic\x7f"),
    ("Orders", {"UNIQ_KEY": 'a"b\\', "TAGS": "é"}, {}),
    ("Orders", {"UNIQ_KEY": 'a"b\\'}, {}),
    ("Orders", {"UNIQ_KEY": 'c"d\\'}, {}),
    ("Orders", {"TAGS": "no id"}, {"queue_id": 1}),
    ("Orders", {"UNIQ_KEY": "A", "DELAY": "1"}, {}),
    plain(20, sys_flag=1 << 2),
    plain(21),
    ("Orders", {"UNIQ_KEY": "B", "WAIT": "false"}, {}),
    *(plain(number) for number in range(23, 40)),
    *(plain(number, ("Orders", "Bills")[number % 2]) for number in range(40, 52)),
    *(half(number, ("Orders", "Bills")[number % 2]) for number in range(52, 56)),
    *((plain, half)[number % 2](number) for number in range(56, 64)),
]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_sends_in_one_read_are_what_they_are_one_by_one(flush: str) -> None:
    """B5, B6, B7: the same answers, offsets and records, whatever is among them, in either encoding."""
    settings = {"flushDiskType": flush}
    async with running_broker(settings=settings) as together, running_broker(settings=settings) as alone:
        for kit in (together, alone):
            for topic in ("Orders", "Bills"):
                await kit.embedded.create_topic(topic, queues=4)
                for number in range(3):  # the second one teaches the broker how their properties look
                    await kit.send(topic, properties=plain(number)[1])
        data = b"".join(map(frame, range(len(SENDS)), SENDS))
        answers = await send_together(together, data, len(SENDS))
        alone.client.serialize_type = ROCKETMQ
        singly = await send_alone(alone, SENDS)
        no_id = next(number for number, send in enumerate(SENDS) if "UNIQ_KEY" not in send[1])
        for told_of in (answers, singly):
            assert len(told_of.pop(no_id).fields["transactionId"] or "") == 32
        assert without_place(answers) == without_place(singly)
        assert {answer.code for answer in answers.values()} == {0, ResponseCode.INVALID_PARAMETER}
        assert len(together.stored(TRANS_HALF_TOPIC)) == 8
        for topic in ("Orders", "Bills", TRANS_HALF_TOPIC):
            for queue_id in range(4):
                one, other = together.stored(topic, queue_id), alone.stored(topic, queue_id)
                assert [bytes(record.body) for record in one] == [bytes(record.body) for record in other]
                assert [record.queue_offset for record in one] == list(range(len(one)))
                for mine, theirs in zip(one, other, strict=True):
                    if mine.properties().get("TAGS") != "no id":
                        assert mine.properties_block == theirs.properties_block
                    assert (mine.sys_flag, mine.flag) == (theirs.sys_flag, theirs.flag)
        counters, others = together.broker.context.traffic, alone.broker.context.traffic
        assert counters.put_messages == others.put_messages
        assert counters.put_failures == others.put_failures
        assert taken(together) == taken(alone)
        open_ones = together.broker.context.transactions.counts
        assert (open_ones.total, open_ones.counts["Bills"].count) == (8, 2)


async def test_one_way_sends_among_others_are_stored_and_not_answered() -> None:
    """B6, B7"""
    async with running_broker() as kit:
        await kit.embedded.create_topic("Orders", queues=4)
        frames = [frame(number, plain(number), ONEWAY_FLAG if number % 3 == 1 else 0) for number in range(30)]
        answers = await send_together(kit, b"".join(frames), 20)
        assert sorted(answers) == [number for number in range(30) if number % 3 != 1]
        await eventually(
            lambda: sum(len(kit.stored("Orders", each)) for each in range(4)) == 30, "all stored"
        )


async def test_messages_of_a_run_are_found_by_their_keys() -> None:
    """B10"""
    async with running_broker() as kit:
        await kit.embedded.create_topic("Orders", queues=4)
        await send_together(kit, b"".join(frame(number, plain(number)) for number in range(8)), 8)
        place = kit.stored("Orders", 1)[1].physical_offset
        for key in ("order-5", f"{5:032X}"):
            found = kit.broker.context.store.index.find("Orders", key, 9, 0, 2**62)
            assert found.physical_offsets == [place]


async def test_a_broker_that_is_busy_refuses_a_run_at_once() -> None:
    """B5: with the code and the remark that a single send gets."""
    async with running_broker() as kit:
        await kit.embedded.create_topic("Orders", queues=4)
        data = b"".join(frame(number, plain(number)) for number in range(4))
        await send_together(kit, data, 4)
        kit.broker.context.sender.pressure.refusal = (
            "[REJECTREQUEST]system busy, start flow control for a while"
        )
        answers = await send_together(kit, data, 4)
        assert {answer.code for answer in answers.values()} == {ResponseCode.SYSTEM_BUSY}
        assert len(kit.stored("Orders")) == 1


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_send_that_fails_takes_no_other_of_its_run_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: str
) -> None:
    """B6: those around it are stored, and each is answered once, with what became of it."""
    async with running_broker(tmp_path, {"flushDiskType": flush}) as kit:
        await kit.send()
        send = MessageSender.send

        def fail_on(
            self: MessageSender, header: SendMessageRequestV2, request: Command, connection: Connection
        ) -> object:
            if header.sys_flag == 1 << 20:
                raise ZeroDivisionError("a defect")
            return send(self, header, request, connection)

        monkeypatch.setattr(MessageSender, "send", fail_on)
        sends = [
            plain(0),
            plain(1),
            plain(2, batch=True, sys_flag=1 << 20),
            plain(3),
            plain(4, batch=True),
            plain(5),
        ]
        data = b"".join(frame(number, each) for number, each in enumerate(sends))
        answers = await send_together(kit, data, len(sends))
        codes = {number: answer.code for number, answer in answers.items()}
        assert codes == {0: 0, 1: 0, 2: 1, 3: 0, 4: ResponseCode.MESSAGE_ILLEGAL, 5: 0}
        stored = [bytes(each.body) for queue in range(4) for each in kit.stored("Orders", queue)]
        assert sorted(stored) == [b"body-0", b"body-1", b"body-3", b"body-5", b"hello"]
