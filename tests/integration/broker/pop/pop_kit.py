"""Consumers that pop, in plain requests over real sockets."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from cometmq.broker.pop.handles import marked_topic
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    NotificationRequest,
    PeekMessageRequest,
    PollingInfoRequest,
    PopMessageRequest,
)
from cometmq.wire.record.codec import Record, decode_record
from tests.answers import Told, now_ms
from tests.integration.broker.broker_kit import BrokerKit
from tests.waiting import eventually

TOPIC = "Orders"
GROUP = "billing"
BROKER = "embedded"
QUICK = {
    "timerPrecisionMs": "100",
    "mappedFileSizeTimerLog": "65536",
    "timerFlushIntervalMs": "50",
}
SAFE = {**QUICK, "flushDiskType": "SYNC_FLUSH"}
LONG_MS = 60_000
PATIENCE_S = 30.0


class PoppedMessage(NamedTuple):
    """A message, and with what it is acknowledged."""

    body: bytes
    topic: str
    """The topic that it is in."""
    queue_id: int
    offset: int
    handle: str
    record: Record

    @property
    def start_offset(self) -> int:
        return int(self.handle.split(" ")[0])

    @property
    def pop_time_ms(self) -> int:
        return int(self.handle.split(" ")[1])


class Popped(NamedTuple):
    """The answer to a pop."""

    told: Told
    messages: list[PoppedMessage]

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    @property
    def rest(self) -> int:
        return int(self.told.fields["restNum"] or 0)


class Consumer:
    """A consumer of a group that pops a topic."""

    def __init__(self, kit: BrokerKit, group: str = GROUP, topic: str = TOPIC) -> None:
        self.kit = kit
        self.group = group
        self.topic = topic

    async def pop(
        self, count: int = 32, invisible_ms: int = LONG_MS, poll_ms: int = 0, **fields: object
    ) -> Popped:
        values: dict[str, object] = {
            "queue_id": 0,
            "max_msg_nums": count,
            "invisible_time": invisible_ms,
            "poll_time": poll_ms,
            "born_time": now_ms(),
            "init_mode": 0,
            **fields,
        }
        header = PopMessageRequest(consumer_group=self.group, topic=self.topic, **values)  # type: ignore[arg-type]
        told = await self.kit.call(RequestCode.POP_MESSAGE, header)
        return Popped(told, self._messages(told))

    def _messages(self, told: Told) -> list[PoppedMessage]:
        """The messages of an answer, with the handles that Java's client gives them."""
        starts = _infos(told.fields.get("startOffsetInfo"))
        offsets = _infos(told.fields.get("msgOffsetInfo"))
        fields = told.fields
        messages, at = [], 0
        seen: dict[tuple[str, int], int] = {}
        while at < len(told.body):
            record = decode_record(told.body, at)
            at += record.total_size
            handle = record.properties().get("POP_CK")
            if handle is None:
                key = ("0", record.queue_id)
                number = seen[key] = seen.get(key, -1) + 1
                offset = int(offsets[key].split(",")[number])
                handle = (
                    f"{starts[key]} {fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']} 0 "
                    f"{BROKER} {record.queue_id} {offset}"
                )
            parts = handle.split(" ")
            topic = marked_topic(self.topic, self.group, parts[4])
            queue_and_offset = int(parts[6]), int(parts[7])
            messages.append(PoppedMessage(bytes(record.body), topic, *queue_and_offset, handle, record))
        return messages

    async def ack(self, message: PoppedMessage, **fields: object) -> Told:
        values: dict[str, object] = {
            "topic": message.topic,
            "queue_id": message.queue_id,
            "extra_info": message.handle,
            "offset": message.offset,
            **fields,
        }
        header = AckMessageRequest(consumer_group=self.group, **values)  # type: ignore[arg-type]
        return await self.kit.call(RequestCode.ACK_MESSAGE, header)

    async def ack_all(self, messages: Iterable[PoppedMessage]) -> None:
        answers = await asyncio.gather(*map(self.ack, messages))
        assert {answer.code for answer in answers} <= {0}, answers

    async def ack_batch(self, messages: list[PoppedMessage], **changes: object) -> Told:
        """Acknowledge messages of one pop from one queue in one request."""
        first = messages[0]
        parts = first.handle.split(" ")
        bits = sum(1 << message.offset - first.start_offset for message in messages)
        ack = {
            "c": self.group,
            "t": self.topic,
            "r": parts[4],
            "so": first.start_offset,
            "q": first.queue_id,
            "rq": int(parts[3]),
            "pt": int(parts[1]),
            "it": int(parts[2]),
            "b": b64encode(bits.to_bytes(bits.bit_length() // 8 + 1, "little")).decode(),
            **changes,
        }
        body = msgspec.json.encode({"brokerName": BROKER, "acks": [ack]})
        return await self.kit.call(RequestCode.BATCH_ACK_MESSAGE, body=body)

    async def change_time(self, message: PoppedMessage, invisible_ms: int) -> PoppedMessage:
        """Have a message invisible for another time; it has another handle then."""
        told = await self.try_to_change_time(message, invisible_ms)
        assert told.code == 0, told
        fields, parts = told.fields, message.handle.split(" ")
        start = message.start_offset if parts[3] == "999" else message.offset
        handle = " ".join(
            (str(start), fields["popTime"] or "", fields["invisibleTime"] or "", fields["reviveQid"] or "")
        )
        return message._replace(handle=" ".join((handle, *parts[4:])))

    async def try_to_change_time(self, message: PoppedMessage, invisible_ms: int, **fields: object) -> Told:
        values: dict[str, object] = {
            "topic": message.topic,
            "queue_id": message.queue_id,
            "extra_info": message.handle,
            "offset": message.offset,
            "invisible_time": invisible_ms,
            **fields,
        }
        header = ChangeInvisibleTimeRequest(consumer_group=self.group, **values)  # type: ignore[arg-type]
        return await self.kit.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)

    async def peek(self, count: int = 32, queue_id: int = 0) -> Popped:
        header = PeekMessageRequest(
            consumer_group=self.group, topic=self.topic, queue_id=queue_id, max_msg_nums=count
        )
        told = await self.kit.call(RequestCode.PEEK_MESSAGE, header)
        messages, at = [], 0
        while at < len(told.body):
            record = decode_record(told.body, at)
            at += record.total_size
            messages.append(
                PoppedMessage(bytes(record.body), record.topic, record.queue_id, 0, "0 0", record)
            )
        return Popped(told, messages)

    async def notify(self, poll_ms: int = 0, queue_id: int = -1, **fields: object) -> Told:
        header = NotificationRequest(
            consumer_group=self.group,
            topic=self.topic,
            queue_id=queue_id,
            poll_time=poll_ms,
            born_time=now_ms(),
            **fields,  # type: ignore[arg-type]
        )
        return await self.kit.call(RequestCode.NOTIFICATION, header)

    async def waiting(self, queue_id: int = 0) -> int:
        """How many pops wait."""
        header = PollingInfoRequest(consumer_group=self.group, topic=self.topic, queue_id=queue_id)
        told = await self.kit.ok(RequestCode.POLLING_INFO, header)
        return int(told.fields["pollingNum"] or -1)

    async def pop_until(self, body: bytes, **fields: object) -> PoppedMessage:
        """Pop until a message comes; others that come meanwhile are a failure."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                popped = await self.pop(poll_ms=500, **fields)  # type: ignore[arg-type]
                if popped.messages:
                    assert popped.bodies == [body], popped.bodies
                    return popped.messages[0]


def _infos(text: str | None) -> Mapping[tuple[str, int], str]:
    parts = [part.split(" ") for part in (text or "").split(";") if part]
    return {(mark, int(queue_id)): value for mark, queue_id, value in parts}


async def filled(kit: BrokerKit, bodies: Iterable[bytes], topic: str = TOPIC, queue_id: int = 0) -> None:
    """Send messages to one queue."""
    for body in bodies:
        answer = await kit.send(topic, body, queue_id=queue_id)
        assert answer.code == 0, answer


async def is_idle(kit: BrokerKit) -> None:
    """Wait until all timers are over and everything that had to come back has."""
    context = kit.broker.context
    timers, reviver = context.timers, context.pop.reviver

    def all_done() -> bool:
        is_over = timers.enqueuer.latest_ms < timers.delivery.read_time_ms
        return is_over and not timers.enqueuer.lag and not any(queue.pending for queue in reviver.queues)

    await eventually(all_done, "all timers are over")


async def stays_empty(consumer: Consumer, until_ms: int) -> None:
    """Show that nothing comes until a moment."""
    while now_ms() < until_ms:
        popped = await consumer.pop(poll_ms=min(max(until_ms - now_ms(), 100), 500))
        assert popped.bodies == []
