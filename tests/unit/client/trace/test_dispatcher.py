"""The way of trace records out: beside everything else, many in a message, and never in the way."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest

from cometmq.client.names import check_group
from cometmq.client.producer.sender import SendReceipt, SendStatus
from cometmq.client.settings import ClientSettings
from cometmq.client.trace import dispatcher as trace_dispatcher
from cometmq.client.trace.dispatcher import (
    MAX_KEYS_LENGTH,
    MAX_RECORDS,
    MAX_WAITING,
    TraceDispatcher,
    trace_group,
    trace_settings,
)
from cometmq.client.trace.records import RecallTrace, decode_records
from cometmq.model.errors import SendError
from cometmq.model.message import Message
from cometmq.model.names import TRACE_TOPIC
from cometmq.model.queue import MessageQueue
from tests.unit.client.trace.test_records import BEGAN, SENT
from tests.waiting import eventually

RECEIPT = SendReceipt(SendStatus.SEND_OK, "ID", "OFFSET", MessageQueue(TRACE_TOPIC, "a", 0), 0)


class Outbox:
    """Takes trace messages, or refuses them."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.refuses = False
        self.open = asyncio.Event()
        self.open.set()
        self.stopped = False

    async def start(self) -> None: ...

    async def stop(self) -> None:
        self.stopped = True

    async def send(self, message: Message, *, timeout_s: float | None = None) -> SendReceipt:
        await self.open.wait()
        if self.refuses:
            raise SendError("not today")
        self.messages.append(message)
        return RECEIPT

    @property
    def ids(self) -> list[str]:
        return [record.msg_id for message in self.messages for record in decode_records(message.body)]


def recall(msg_id: str) -> RecallTrace:
    return RecallTrace(timestamp_ms=1, region_id="r", group="g", topic="t", msg_id=msg_id, success=True)


async def running(outbox: Outbox) -> TraceDispatcher:
    dispatcher = TraceDispatcher(outbox, TRACE_TOPIC)
    await dispatcher.start()
    return dispatcher


async def test_a_stop_sends_what_waits_under_all_its_keys() -> None:
    outbox = Outbox()
    dispatcher = await running(outbox)
    dispatcher.append(SENT)
    dispatcher.append(BEGAN)
    await dispatcher.stop()
    (message,) = outbox.messages
    assert (message.topic, message.keys) == (TRACE_TOPIC, ("ID", "a", "b"))
    assert decode_records(message.body) == [SENT, BEGAN]
    assert outbox.stopped
    assert dispatcher.dropped == 0


async def test_a_full_message_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_dispatcher, "FLUSH_S", 3600.0)
    outbox = Outbox()
    dispatcher = await running(outbox)
    for number in range(MAX_RECORDS + 1):
        dispatcher.append(recall(str(number)))
    await eventually(lambda: len(outbox.ids) > MAX_RECORDS, "all records are sent", seconds=5)
    assert [len(decode_records(message.body)) for message in outbox.messages] == [MAX_RECORDS, 1]
    await dispatcher.stop()


async def test_records_leave_after_a_short_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_dispatcher, "FLUSH_S", 0.01)
    outbox = Outbox()
    dispatcher = await running(outbox)
    dispatcher.append(SENT)
    await eventually(lambda: outbox.messages, "the record is sent", seconds=5)
    await dispatcher.stop()
    assert len(outbox.messages) == 1


async def test_with_too_many_waiting_records_are_dropped_and_counted() -> None:
    """B13: a broker that does not answer holds nobody up."""
    outbox = Outbox()
    outbox.open.clear()
    dispatcher = await running(outbox)
    for number in range(MAX_WAITING + 10):
        dispatcher.append(recall(str(number)))
    assert dispatcher.dropped == 10
    outbox.open.set()
    await dispatcher.stop()
    assert outbox.ids == [str(number) for number in range(MAX_WAITING)]
    dispatcher.append(SENT)
    assert dispatcher.dropped == 11


async def test_what_the_broker_does_not_take_is_counted_and_the_next_message_sent() -> None:
    outbox = Outbox()
    outbox.refuses = True
    dispatcher = await running(outbox)
    for number in range(MAX_RECORDS + 5):
        dispatcher.append(recall(str(number)))
    await dispatcher.stop()
    assert dispatcher.dropped == MAX_RECORDS + 5


async def test_a_stop_does_not_wait_for_a_broker_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_dispatcher, "STOP_TIMEOUT_S", 0.01)
    outbox = Outbox()
    outbox.open.clear()
    dispatcher = await running(outbox)
    dispatcher.append(SENT)
    await dispatcher.stop()
    assert outbox.stopped
    assert outbox.messages == []


async def test_any_thread_may_append() -> None:
    outbox = Outbox()
    dispatcher = await running(outbox)

    def append(number: int) -> None:
        for each in range(200):
            dispatcher.append(recall(f"{number}-{each}"))

    threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    await dispatcher.stop()
    assert len(outbox.ids) == len(set(outbox.ids)) == 800


async def test_keys_fit_into_the_properties_of_a_message() -> None:
    outbox = Outbox()
    dispatcher = await running(outbox)
    long = " ".join(f"{number:0200}" for number in range(60))
    for number in range(5):
        dispatcher.append(msgspec.structs.replace(SENT, msg_id=str(number), keys=f"{number}{long}"))
    dispatcher.append(msgspec.structs.replace(SENT, msg_id="huge", keys="k" * 30_000 + " \t"))
    await dispatcher.stop()
    assert outbox.ids == ["0", "1", "2", "3", "4", "huge"]
    assert max(len(" ".join(message.keys)) for message in outbox.messages) <= MAX_KEYS_LENGTH
    assert all(
        record.msg_id in message.keys
        for message in outbox.messages
        for record in decode_records(message.body)
    )


def test_the_producer_of_traces_is_a_client_of_its_own() -> None:
    settings = ClientSettings(namesrv="h:1", instance_name="mine", namespace="ns", client_ip="10.0.0.1")
    traces = trace_settings(settings)
    assert (traces.namesrv, traces.client_ip) == ("h:1", "10.0.0.1")
    assert (traces.instance_name, traces.namespace, traces.enable_trace) == ("DEFAULT", "", False)


def test_its_group_is_named_after_the_client_and_never_too_long() -> None:
    first, second = trace_group("shop", "PRODUCE"), trace_group("shop", "PRODUCE")
    assert first.startswith("_INNER_TRACE_PRODUCER-shop-PRODUCE-")
    assert first != second
    check_group(trace_group("g" * 120, "CONSUME"))
