"""Delayed messages of the levels: put aside, delivered in time, and exactly resumed (B6)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from cometmq.model.names import DELAY_TOPIC
from tests.integration.broker.broker_kit import DELAYS, ID, BrokerKit, running_broker
from tests.integration.broker.message_types_kit import kill
from tests.waiting import eventually


def delivered(kit: BrokerKit, topic: str = "Orders", queue_id: int = 0) -> list[bytes]:
    return [bytes(record.body) for record in kit.stored(topic, queue_id)]


async def test_a_delayed_message_waits_in_the_queue_of_its_level_and_then_comes() -> None:
    """B6: with the properties that say where it belongs."""
    async with running_broker(settings=DELAYS) as kit:
        began = time.monotonic()
        answer = await kit.send(queue_id=2, properties={"DELAY": "1", "UNIQ_KEY": ID, "TAGS": "a"})
        assert (answer.code, answer.fields["queueId"], answer.fields["queueOffset"]) == (0, "2", "0")
        waiting = kit.stored(DELAY_TOPIC, 0)
        assert delivered(kit, queue_id=2) == []
        await eventually(lambda: delivered(kit, queue_id=2) == [b"hello"], "the message is delivered")
        assert 1.0 <= time.monotonic() - began < 6.0  # a busy machine lets it wait
        record = kit.stored("Orders", 2)[0]
        assert record.properties_block == waiting[0].properties_block
        assert record.properties_block == (
            b"MSG_REGION\x01DefaultRegion\x02UNIQ_KEY\x01%b\x02CLUSTER\x01DefaultCluster\x02DELAY\x011\x02"
            b"TAGS\x01a\x02TRACE_ON\x01true\x02REAL_TOPIC\x01Orders\x02REAL_QID\x012\x02" % ID.encode()
        )
        assert record.born_timestamp_ms == waiting[0].born_timestamp_ms
        assert record.born_host == waiting[0].born_host


async def test_a_level_that_is_too_high_is_the_highest() -> None:
    """B6: and the property says so."""
    async with running_broker(settings=DELAYS) as kit:
        await kit.send(properties={"DELAY": "99", "UNIQ_KEY": ID})
        assert kit.stored(DELAY_TOPIC, 4)[0].properties()["DELAY"] == "5"


@pytest.mark.parametrize("level", ["0", "-1", "soon"])
async def test_what_is_no_level_is_no_delay(level: str) -> None:
    """B6."""
    async with running_broker() as kit:
        await kit.send(properties={"DELAY": level, "UNIQ_KEY": ID})
        assert delivered(kit) == [b"hello"]


async def test_a_delay_level_wins_over_a_delivery_time() -> None:
    """B6: as in Apache's broker."""
    async with running_broker(settings=DELAYS) as kit:
        await kit.send(properties={"DELAY": "2", "TIMER_DELAY_SEC": "60", "UNIQ_KEY": ID})
        assert "TIMER_DELAY_SEC" not in kit.stored(DELAY_TOPIC, 1)[0].properties()


async def test_many_messages_keep_their_order_and_come_once() -> None:
    """B6: more than are delivered at once."""
    async with running_broker(settings=DELAYS) as kit:
        bodies = [b"%d" % number for number in range(200)]
        for body in bodies:
            await kit.send(body=body, properties={"DELAY": "1", "UNIQ_KEY": ID})
        await eventually(lambda: len(delivered(kit)) >= len(bodies), "all are delivered")
        assert delivered(kit) == bodies


async def test_a_restart_goes_on_exactly_where_the_broker_stopped(tmp_path: Path) -> None:
    """B6: what was delivered does not come again, and what was not comes."""
    async with running_broker(tmp_path, DELAYS) as kit:
        await kit.send(body=b"first", properties={"DELAY": "1", "UNIQ_KEY": ID})
        await kit.send(body=b"second", properties={"DELAY": "2", "UNIQ_KEY": ID})
        await eventually(lambda: delivered(kit) == [b"first"], "the first one is delivered")
        await kit.embedded.restart()
        await kit.client.stop()
        await eventually(lambda: delivered(kit) == [b"first", b"second"], "the second one is delivered")
        offsets = kit.broker.context.delays.offsets
        assert (offsets[1], offsets[2]) == (1, 1)


async def test_what_became_due_while_the_broker_was_down_comes_at_once(tmp_path: Path) -> None:
    """B6."""
    async with running_broker(tmp_path, DELAYS) as kit:
        await kit.send(properties={"DELAY": "1", "UNIQ_KEY": ID})
    async with running_broker(tmp_path, {"messageDelayLevel": "1s 2s 3s 4s 5s"}) as kit:
        await eventually(lambda: delivered(kit) == [b"hello"], "it is delivered")


@pytest.mark.parametrize("offset", [10**30, 10**12, -5])
async def test_a_place_that_cannot_be_holds_nothing_up(tmp_path: Path, offset: int) -> None:
    """B6: a level goes on within its queue, whatever the file says."""
    async with running_broker(tmp_path, DELAYS) as kit:
        path = kit.embedded.folder / "config" / "delayOffset.json"
    path.write_text(f'{{"offsetTable":{{1:{offset},99:{offset}}}}}')
    async with running_broker(tmp_path, DELAYS) as kit:
        await kit.send(properties={"DELAY": "1", "UNIQ_KEY": ID})
        await eventually(lambda: delivered(kit) == [b"hello"], "it is delivered")


async def test_a_kill_repeats_messages_of_the_last_two_seconds_at_most(tmp_path: Path) -> None:
    """B6: a save begins every second, and takes as long as the disk; a machine that stalls is allowed for."""
    seen: dict[bytes, float] = {}
    stalled_s = 0.0
    async with running_broker(tmp_path / "first", DELAYS) as kit:
        looked = time.monotonic()
        for number in range(120):
            await kit.send(body=b"%d" % number, properties={"DELAY": "1", "UNIQ_KEY": ID})
            await asyncio.sleep(0.03)  # a load that goes on over several saves
            now = time.monotonic()
            stalled_s, looked = max(stalled_s, now - looked - 0.03), now
            for body in delivered(kit):
                seen.setdefault(body, now)
        left = kill(kit, tmp_path / "second")
        killed = time.monotonic()
    async with running_broker(left, DELAYS) as kit:
        everything = {b"%d" % number for number in range(120)}
        await eventually(lambda: set(delivered(kit)) == everything, "nothing is lost")
        delays = kit.broker.context.delays
        await eventually(lambda: delays.offsets[1] == 120, "all are passed")
        bodies = delivered(kit)
        repeated = {body for body in everything if bodies.count(body) > 1}
        assert all(killed - seen[body] <= 2.0 + 2 * stalled_s for body in repeated if body in seen)
        assert max(map(bodies.count, everything)) <= 2


async def test_offsets_are_saved_while_the_broker_runs(tmp_path: Path) -> None:
    """B6: so that a kill repeats little."""
    async with running_broker(tmp_path, DELAYS) as kit:
        await kit.send(properties={"DELAY": "1", "UNIQ_KEY": ID})
        path = kit.embedded.folder / "config" / "delayOffset.json"
        await eventually(lambda: path.is_file() and b"1:1" in path.read_bytes(), "the offset is saved")
        assert delivered(kit) == [b"hello"]
        assert kit.broker.context.store.flusher.flushed_offset == kit.broker.context.store.log.max_offset


async def test_delays_also_wait_for_the_disk_with_synchronous_flush() -> None:
    """B6: a message that consumers cannot see yet is not lost."""
    async with running_broker(settings={**DELAYS, "flushDiskType": "SYNC_FLUSH"}) as kit:
        await kit.send(properties={"DELAY": "1", "UNIQ_KEY": ID})
        await eventually(lambda: delivered(kit) == [b"hello"], "it is delivered")
