"""Messages with a delivery time of their own: kept in the timer wheel, delivered in time, taken back (B6)."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import msgspec
import pytest

from cometmq.model.names import TIMER_TOPIC
from cometmq.store.timer.checkpoint import TimerProgress
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.send import RecallMessageRequest
from cometmq.wire.json import fastjson
from tests.answers import Told, now_ms
from tests.integration.broker.broker_kit import ID, BrokerKit, running_broker
from tests.integration.broker.message_types_kit import kill
from tests.waiting import eventually

SLOT_MS = 100
QUICK = {
    "timerPrecisionMs": str(SLOT_MS),
    "mappedFileSizeTimerLog": "65536",
    "timerFlushIntervalMs": "50",
    "recallMessageEnable": "true",
}
LATE_MS = 1500
"""How much later than due a busy machine may deliver in these tests."""


def delivered(kit: BrokerKit, topic: str = "Orders", queue_id: int = 0) -> list[bytes]:
    return [bytes(record.body) for record in kit.stored(topic, queue_id)]


async def send_timed(kit: BrokerKit, body: bytes, unique_key: str = ID, **properties: str) -> Told:
    answer = await kit.send(body=body, properties={"UNIQ_KEY": unique_key, **properties})
    assert answer.code == 0, answer
    return answer


async def is_set(kit: BrokerKit, count: int) -> None:
    """Wait until so many messages are in the wheel."""
    await eventually(lambda: kit.broker.context.timers.enqueuer.taken >= count, f"{count} timers are set")


@pytest.mark.parametrize("name", ["TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
async def test_a_message_waits_in_the_timer_topic_and_comes_at_its_time(name: str) -> None:
    """B6: never before it, and at most a slot after it, with the properties that Apache's broker gives it."""
    async with running_broker(settings=QUICK) as kit:
        before_ms = now_ms()
        value = 650 if name == "TIMER_DELAY_MS" else before_ms + 650
        answer = await kit.send(queue_id=2, properties={"UNIQ_KEY": ID, "TAGS": "a", name: str(value)})
        after_ms = now_ms()
        assert (answer.code, answer.fields["queueId"], answer.fields["queueOffset"]) == (0, "2", "0")
        (waiting,) = kit.stored(TIMER_TOPIC)
        slot_ms = int(waiting.properties()["TIMER_OUT_MS"])
        assert slot_ms % SLOT_MS == 0
        assert before_ms + 650 - SLOT_MS <= slot_ms < after_ms + 650
        assert delivered(kit, queue_id=2) == []

        await eventually(lambda: delivered(kit, queue_id=2) == [b"hello"], "the message is delivered")
        (record,) = kit.stored("Orders", 2)
        assert before_ms + 650 <= record.store_timestamp_ms <= after_ms + 650 + SLOT_MS + LATE_MS
        properties = record.properties()
        assert int(properties.pop("TIMER_DEQUEUE_MS")) <= record.store_timestamp_ms
        assert int(properties.pop("TIMER_ENQUEUE_MS")) % SLOT_MS == 0
        assert properties == waiting.properties()
        assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("Orders", "2")
        assert record.born_timestamp_ms == waiting.born_timestamp_ms
        assert record.born_host == waiting.born_host


async def test_a_broker_that_is_to_disappear_first_delivers_later() -> None:
    """B6: disappearTimeAfterStart, as with Apache's broker."""
    async with running_broker(settings={**QUICK, "disappearTimeAfterStart": "2000"}) as kit:
        began_ms = now_ms()
        hidden_s = kit.broker.context.settings.hidden_s
        await send_timed(kit, b"x", TIMER_DELAY_MS="150")
        await eventually(lambda: delivered(kit) == [b"x"], "the message is delivered")
        assert kit.stored("Orders", 0)[0].store_timestamp_ms >= began_ms + hidden_s * 1000 - 50


async def test_switching_timers_on_counts_from_the_next_start() -> None:
    """B13: until then a message would be taken, and not come."""
    async with running_broker(settings={**QUICK, "timerWheelEnable": "false"}) as kit:
        change = b"timerWheelEnable=true\n"
        answer = await kit.call(RequestCode.UPDATE_BROKER_CONFIG, None, change)
        assert answer.fields["states"] == "timerWheelEnable=next start"
        answer = await kit.send(body=b"x", properties={"UNIQ_KEY": ID, "TIMER_DELAY_MS": "100"})
        assert answer.code == 1
        assert "timerWheelEnable is false" in (answer.remark or "")


async def test_a_delay_in_seconds_is_one() -> None:
    """B6."""
    async with running_broker(settings=QUICK) as kit:
        before_ms = now_ms()
        await send_timed(kit, b"later", TIMER_DELAY_SEC="1")
        await eventually(lambda: delivered(kit) == [b"later"], "the message is delivered")
        assert kit.stored("Orders")[0].store_timestamp_ms >= before_ms + 1000


async def test_what_is_due_already_is_stored_at_once() -> None:
    """B6."""
    async with running_broker(settings=QUICK) as kit:
        await send_timed(kit, b"now", TIMER_DELIVER_MS="1")
        await send_timed(kit, b"at once", TIMER_DELAY_MS="0")
        assert delivered(kit) == [b"now", b"at once"]
        assert kit.stored(TIMER_TOPIC) == []


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_SEC": "61"},
        {"TIMER_DELIVER_MS": "soon"},
        {"TIMER_DELAY_MS": "9" * 30},
        {"TIMER_DELAY_MS": "-1", "TIMER_DEL_UNIQKEY": "Orders+1"},
    ],
)
async def test_a_time_that_cannot_be_is_refused_and_changes_nothing(properties: dict[str, str]) -> None:
    """B6: too far away, no number, or a cancellation of what is due."""
    async with running_broker(settings={**QUICK, "timerMaxDelaySec": "60"}) as kit:
        answer = await kit.send(properties={"UNIQ_KEY": ID, **properties})
        assert answer.code == 13
        assert answer.remark == (
            "timer message illegal, the delay time should not be bigger than the max delay 60000ms; "
            "or if set del msg, the delay time should be bigger than the current time"
        )
        assert answer.fields["MSG_REGION"] == "DefaultRegion"
        assert kit.broker.context.store.log.max_offset == 0


async def test_without_the_wheel_a_delivery_time_is_refused() -> None:
    """B6."""
    async with running_broker(settings={"timerWheelEnable": "false"}) as kit:
        answer = await kit.send(properties={"UNIQ_KEY": ID, "TIMER_DELAY_SEC": "1"})
        expected = "accurate timer message is not enabled, timerWheelEnable is false"
        assert (answer.code, answer.remark) == (1, expected)


async def test_a_slot_that_is_overfull_takes_no_more() -> None:
    """B6: others do."""
    async with running_broker(settings={**QUICK, "timerCongestNumEachSlot": "1"}) as kit:
        deliver_ms = now_ms() + 30_000
        for number in range(2):
            await send_timed(kit, b"%d" % number, TIMER_DELIVER_MS=str(deliver_ms))
            await is_set(kit, number + 1)
        answer = await kit.send(properties={"UNIQ_KEY": ID, "TIMER_DELIVER_MS": str(deliver_ms)})
        assert answer.code == 1
        assert (answer.remark or "").startswith("timer message is under flow control, max num limit is 2 or")
        await send_timed(kit, b"elsewhere", TIMER_DELIVER_MS=str(deliver_ms + SLOT_MS))


async def test_messages_of_one_slot_come_in_their_order_and_once() -> None:
    """B6: more than are delivered, or read, at once, and over several files of the timer log."""
    async with running_broker(settings=QUICK) as kit:
        deliver_ms = now_ms() + 2500
        bodies = [b"%d" % number for number in range(1500)]
        sends = (send_timed(kit, body, TIMER_DELIVER_MS=str(deliver_ms)) for body in bodies)
        await asyncio.gather(*sends)  # together, so that all are there before the first is due
        await eventually(lambda: len(delivered(kit)) >= len(bodies), "all are delivered")
        assert delivered(kit) == bodies
        assert kit.broker.context.timers.delivery.delivered == len(bodies)


async def test_a_message_that_is_too_far_away_goes_round_and_comes_in_time() -> None:
    """B6: several times through the timer topic."""
    async with running_broker(settings={**QUICK, "timerRollWindowSlot": "3"}) as kit:
        before_ms = now_ms()
        await send_timed(kit, b"far", TIMER_DELAY_MS="1500")
        await eventually(lambda: delivered(kit) == [b"far"], "it is delivered")
        (record,) = kit.stored("Orders")
        assert before_ms + 1500 <= record.store_timestamp_ms <= before_ms + 1500 + SLOT_MS + LATE_MS
        rolls = int(record.properties()["TIMER_ROLL_TIMES"])
        assert rolls >= 4
        assert len(kit.stored(TIMER_TOPIC)) == rolls + 1
        assert {each.properties()["TIMER_OUT_MS"] for each in kit.stored(TIMER_TOPIC)} == {
            record.properties()["TIMER_OUT_MS"]
        }


# Taking back


async def recall(kit: BrokerKit, handle: str | None, topic: str = "Orders") -> Told:
    return await kit.call(
        RequestCode.RECALL_MESSAGE, RecallMessageRequest(topic=topic, recall_handle=handle or "")
    )


@pytest.mark.parametrize("window", ["172800", "3"])
async def test_a_message_is_taken_back_by_its_handle(window: str) -> None:
    """B6: it alone, also if it goes round, and also from a slot that others wait in."""
    async with running_broker(settings={**QUICK, "timerRollWindowSlot": window}) as kit:
        deliver_ms = str(now_ms() + 1000)
        await send_timed(kit, b"first", "A", TIMER_DELIVER_MS=deliver_ms)
        answer = await send_timed(kit, b"second", "B", TIMER_DELIVER_MS=deliver_ms)
        await send_timed(kit, b"third", "C", TIMER_DELIVER_MS=deliver_ms)
        recalled = await recall(kit, answer.fields["recallHandle"])
        assert (recalled.code, recalled.fields["msgId"]) == (0, "B")
        await eventually(lambda: b"third" in delivered(kit), "the last one is delivered")
        assert delivered(kit) == [b"first", b"third"]
        assert kit.broker.context.timers.delivery.cancelled == 1
        await eventually(lambda: kit.broker.context.timers.counts.total == 0, "nothing is counted as waiting")


async def test_a_recall_that_cannot_be_is_refused() -> None:
    """B6: with Apache's codes."""
    async with running_broker(settings=QUICK) as kit:
        await kit.embedded.create_topic("Others")
        answer = await send_timed(kit, b"later", TIMER_DELAY_MS="30000")
        handle = answer.fields["recallHandle"]
        assert (await recall(kit, handle, "Nowhere"))[:2] == (
            17,
            "recall failed, the topic[Nowhere] not exist",
        )
        assert (await recall(kit, handle, "Others"))[:2] == (604, "recall failed, topic not match")
        for broken in ("", "%%%", "djE", "djIgYSBiIGMgZA=="):
            assert (await recall(kit, broken))[:2] == (604, "recall handle is invalid")
        elsewhere = "djEgT3JkZXJzIGVsc2V3aGVyZSA5OTk5OTk5OTk5OTk5IEE="  # v1 Orders elsewhere 9999999999999 A
        unavailable = (604, "recall failed, broker service not available")
        assert (await recall(kit, elsewhere))[:2] == unavailable
        past = "djEgT3JkZXJzIGVtYmVkZGVkIDEgQQ=="  # v1 Orders embedded 1 A
        assert (await recall(kit, past))[:2] == (604, "recall failed, timestamp invalid")


async def test_recalls_are_forbidden_unless_the_settings_allow_them() -> None:
    """B6."""
    async with running_broker(settings={**QUICK, "recallMessageEnable": "false"}) as kit:
        answer = await send_timed(kit, b"later", TIMER_DELAY_MS="30000")
        refused = await recall(kit, answer.fields["recallHandle"])
        assert refused[:2] == (16, "recall failed, operation is forbidden")


async def test_a_cancellation_that_is_a_message_of_a_client_works_too() -> None:
    """B6: and is never delivered itself."""
    async with running_broker(settings=QUICK) as kit:
        deliver_ms = str(now_ms() + 700)
        await send_timed(kit, b"unwanted", "A", TIMER_DELIVER_MS=deliver_ms)
        await send_timed(kit, b"x", "X", TIMER_DELIVER_MS=deliver_ms, TIMER_DEL_UNIQKEY="Orders+A")
        await send_timed(kit, b"wanted", "B", TIMER_DELIVER_MS=deliver_ms)
        await eventually(lambda: delivered(kit) == [b"wanted"], "only the wanted one is delivered")


# Restarts


async def test_a_restart_goes_on_exactly_where_the_broker_stopped(tmp_path: Path) -> None:
    """B6: what was delivered does not come again, and what was not comes at its time."""
    async with running_broker(tmp_path, QUICK) as kit:
        await send_timed(kit, b"first", TIMER_DELAY_MS="200")
        before_ms = now_ms()
        await send_timed(kit, b"second", TIMER_DELAY_MS="1500")
        await eventually(lambda: delivered(kit) == [b"first"], "the first one is delivered")
        await kit.embedded.restart()
        await kit.client.stop()
        assert delivered(kit) == [b"first"]
        await eventually(lambda: delivered(kit) == [b"first", b"second"], "the second one is delivered")
        assert kit.stored("Orders")[1].store_timestamp_ms >= before_ms + 1500
        assert kit.broker.context.timers.enqueuer.queue_offset == 2


async def test_what_became_due_while_the_broker_was_down_comes_at_once(tmp_path: Path) -> None:
    """B6."""
    async with running_broker(tmp_path, QUICK) as kit:
        await send_timed(kit, b"due", TIMER_DELAY_MS="300")
        await is_set(kit, 1)
    async with running_broker(tmp_path, QUICK) as kit:
        await eventually(lambda: delivered(kit) == [b"due"], "it is delivered")


async def test_a_kill_loses_no_timer_and_repeats_none_that_is_long_delivered(tmp_path: Path) -> None:
    """B4, B6: those in the wheel and those that are only in the timer topic."""
    async with running_broker(tmp_path / "killed", QUICK) as kit:
        await send_timed(kit, b"delivered", TIMER_DELAY_MS="100")
        await eventually(lambda: delivered(kit) == [b"delivered"], "the first one is delivered")
        timers = kit.broker.context.timers
        slot_ms = int(kit.stored(TIMER_TOPIC)[0].properties()["TIMER_OUT_MS"])
        await eventually(lambda: timers.progress.last_read_time_ms > slot_ms, "that is saved")
        await send_timed(kit, b"set", TIMER_DELAY_MS="2000")
        await is_set(kit, 2)
        stop_enqueuing(kit)
        await send_timed(kit, b"sent", TIMER_DELAY_MS="2000")
        left = kill(kit, tmp_path / "left")
    async with running_broker(left, QUICK) as kit:
        await eventually(lambda: len(delivered(kit)) >= 3, "all are delivered")
        assert delivered(kit) == [b"delivered", b"set", b"sent"]


def stop_enqueuing(kit: BrokerKit) -> None:
    context = kit.broker.context
    context.settings.change(
        context.settings.broker, msgspec.structs.replace(context.settings.store, timer_stop_enqueue=True)
    )


async def test_what_was_taken_back_in_time_stays_taken_back_over_a_kill(tmp_path: Path) -> None:
    """B6: also if the timers had not yet come to the cancellation, and both are overdue afterwards."""
    settings = {"recallMessageEnable": "true"}
    async with running_broker(tmp_path / "a", settings) as kit:
        due_ms = now_ms() + 1500
        sent = await kit.send("Timed", b"unwanted", {"UNIQ_KEY": "A", "TIMER_DELIVER_MS": str(due_ms)})
        timers = kit.broker.context.timers
        await eventually(lambda: timers.enqueuer.taken == 1, "the message is in the wheel")
        assert timers._task is not None
        timers._task.cancel()
        header = RecallMessageRequest(topic="Timed", recall_handle=sent.fields["recallHandle"] or "")
        assert (await kit.call(RequestCode.RECALL_MESSAGE, header)).code == 0
        copy = kill(kit, tmp_path / "b")
    await eventually(lambda: now_ms() > due_ms + 500, "both are overdue")
    async with running_broker(copy, settings) as kit:
        timers = kit.broker.context.timers
        await eventually(lambda: timers.delivery.cancelled == 1, "the message is passed over")
        assert kit.stored("Timed") == []


async def test_a_wheel_that_is_lost_is_made_again_from_the_timer_log(tmp_path: Path) -> None:
    """B5."""
    async with running_broker(tmp_path, QUICK) as kit:
        await send_timed(kit, b"kept", TIMER_DELAY_MS="1000")
        await is_set(kit, 1)
        await kit.embedded.stop_broker()
        (tmp_path / "store" / "timerwheel").unlink()
        await kit.embedded.start()
        await kit.client.stop()
        await eventually(lambda: delivered(kit) == [b"kept"], "it is delivered")


async def test_a_lost_timer_log_is_made_again_from_the_timer_topic(tmp_path: Path) -> None:
    """B5."""
    async with running_broker(tmp_path, QUICK) as kit:
        await send_timed(kit, b"kept", TIMER_DELAY_MS="1000")
        await is_set(kit, 1)
        await kit.embedded.stop_broker()
        for path in (tmp_path / "store" / "timerlog").iterdir():
            path.unlink()
        await kit.embedded.start()
        await kit.client.stop()
        await eventually(lambda: delivered(kit) == [b"kept"], "it is delivered")


async def test_a_message_that_cannot_be_put_is_tried_until_it_can() -> None:
    """B6: and comes once."""
    async with running_broker(settings=QUICK) as kit:
        await send_timed(kit, b"patient", TIMER_DELAY_MS="400")
        await is_set(kit, 1)
        writer = kit.broker.context.store.writer
        writer.open(is_open=False)
        timers = kit.broker.context.timers
        await eventually(lambda: timers.read_behind_ms > 300, "it is overdue")
        assert delivered(kit) == []
        writer.open()
        await eventually(lambda: delivered(kit) == [b"patient"], "it is delivered")


async def test_timers_also_wait_for_the_disk_with_synchronous_flush() -> None:
    """B6: a message that consumers cannot see yet is not lost."""
    async with running_broker(settings={**QUICK, "flushDiskType": "SYNC_FLUSH"}) as kit:
        answer = await send_timed(kit, b"safe", TIMER_DELAY_MS="300")
        await send_timed(kit, b"taken back", "B", TIMER_DELAY_MS="30000")
        await eventually(lambda: delivered(kit) == [b"safe"], "it is delivered")
        assert answer.fields["recallHandle"]


# Files


async def test_the_files_are_those_of_apache(tmp_path: Path) -> None:
    """B4: timer log, wheel, checkpoint and metrics."""
    async with running_broker(tmp_path, QUICK) as kit:
        await send_timed(kit, b"later", TIMER_DELAY_MS="60000")
        await is_set(kit, 1)
        (waiting,) = kit.stored(TIMER_TOPIC)
        slot_ms = int(waiting.properties()["TIMER_OUT_MS"])
        metrics = await kit.ok(RequestCode.GET_TIMER_METRICS)
        assert fastjson.loads(metrics.body)["timingCount"]["Orders"]["count"] == 1
        await eventually(
            lambda: kit.broker.context.timers.progress.last_timer_queue_offset == 1, "it is saved"
        )
        told = TimerProgress.unpack((await kit.ok(RequestCode.GET_TIMER_CHECK_POINT)).body)
        info = await kit.ok(RequestCode.GET_BROKER_RUNTIME_INFO)
        assert fastjson.loads(info.body)["table"]["timerCongestNum"] == "1"
    assert (told.last_timer_log_flush_pos, told.last_timer_queue_offset) == (52, 1)
    store = tmp_path / "store"
    (log,) = (store / "timerlog").iterdir()
    size, previous, magic, written_ms, delay_ms, offset, length, hashed, reserved = struct.unpack(
        ">iqiqiqiiq", log.read_bytes()[:52]
    )
    assert (size, previous, magic, written_ms + delay_ms) == (52, -1, 1, slot_ms)
    assert (offset, length, reserved) == (waiting.physical_offset, waiting.total_size, 0)
    assert hashed == -1924903163  # Java's hash of "Orders"
    wheel = (store / "timerwheel").read_bytes()
    assert len(wheel) == 38_707_200
    slot = slot_ms // SLOT_MS
    assert struct.unpack_from(">qqqii", wheel, slot % 1_209_600 * 32) == (slot, 0, 0, 1, 0)
    saved = TimerProgress.unpack((store / "config" / "timercheck").read_bytes()[:56])
    assert (saved.last_timer_queue_offset, saved.master_timer_queue_offset) == (1, 1)
    assert saved.last_timer_log_flush_pos == 52
    metrics = fastjson.loads((store / "config" / "timermetrics").read_bytes())
    assert metrics["timingCount"]["Orders"]["count"] == 1
