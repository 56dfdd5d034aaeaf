"""Redrive: sends dead letters to their topics again, each exactly once.

Brokers keep the progress, as the offsets of a consumer group (`progress_group`) in the queues of the dead
letters; an offset is committed after each acknowledged message. A dead letter stays where it is until it
expires; brokers cannot delete one.

Rules kept here:
- A message gets its id from the position of its dead letter, so a dead letter always gets the same id. Before
  a message is sent, its topic is queried for that id: a message that an interrupted run sent, or whose commit
  a broker lost, is found there and not sent again.
- The offset of a queue never passes a message that failed. The next run retries it, and finds the ids of
  later messages that were sent.
- Queues are read up to their end at the start, so that a message that becomes a dead letter again does not
  circle.
- One run at a time: two runs can both find that a message is not there yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import blake2b
from ipaddress import ip_address
from typing import Final

import msgspec

from cometmq.client.admin.admin import Admin
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.send_request import SystemFields
from cometmq.client.producer.sender import SendReceipt
from cometmq.model import message_properties as names
from cometmq.model.errors import CometError, MessageError, NotFoundError
from cometmq.model.message import Message, StoredMessage
from cometmq.model.names import DLQ_PREFIX, MAX_GROUP_LENGTH
from cometmq.model.queue import MessageQueue
from cometmq.wire.record.ids import UniqueIdGenerator

REDRIVEN_FROM: Final = "REDRIVEN_FROM"
"""The property of a redriven message: the offset id of its dead letter."""
_PREFIX: Final = "redrive-"
_PAGE: Final = 32
_DAY_MS: Final = 86_400_000


class Outcome(StrEnum):
    """The outcome for one dead letter."""

    SENT = "sent"
    ALREADY = "already"
    """An earlier run sent it."""
    WOULD_SEND = "wouldSend"
    FAILED = "failed"


class Step(msgspec.Struct, frozen=True):
    """One dead letter and its outcome."""

    dead: StoredMessage
    outcome: Outcome
    topic: str | None
    """The topic it goes to."""
    reason: str | None = None
    """Why it failed."""


def dead_letter_topic(group: str) -> str:
    return DLQ_PREFIX + group


def progress_group(group: str) -> str:
    """The group whose offsets are the progress of a redrive of this group's dead letters."""
    name = _PREFIX + group
    if len(name) <= MAX_GROUP_LENGTH:
        return name
    digest = blake2b(group.encode(), digest_size=8).hexdigest()
    return f"{name[: MAX_GROUP_LENGTH - len(digest) - 1]}-{digest}"


def origin_topic(dead: StoredMessage) -> str | None:
    """The topic that a dead letter comes from."""
    return dead.properties.get(names.DLQ_ORIGIN_TOPIC) or dead.properties.get(names.RETRY_TOPIC)


def redrive_id(dead: StoredMessage) -> str:
    """The id of the message that is sent for a dead letter.

    It has the form of every message id, so tools that read the time in it find one, a day before the dead
    letter was stored. A digest of the position replaces process id and counter.
    """
    position = (
        f"{dead.topic}/{dead.broker_name}/{dead.queue_id}/{dead.queue_offset}/{dead.store_timestamp_ms}"
    )
    digest = blake2b(position.encode(), digest_size=8).digest()
    month = datetime.fromtimestamp(dead.store_timestamp_ms / 1000, UTC).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    process, constant, count = digest[:2], digest[2:6], digest[6:]
    generator = UniqueIdGenerator(
        ip_address(dead.store_host.ip).packed,
        int.from_bytes(process),
        int.from_bytes(constant),
        int(month.timestamp() * 1000),
        int.from_bytes(count),
    )
    return generator.next_id(dead.store_timestamp_ms - _DAY_MS)


def redriven(dead: StoredMessage, topic: str) -> Message:
    """The message for a dead letter: what the application had set, and `REDRIVEN_FROM`."""
    properties = dead.user_properties
    properties.pop(names.SHARDING_KEY, None)
    properties[REDRIVEN_FROM] = dead.offset_msg_id
    return Message(
        topic,
        dead.body,
        tags=dead.tags,
        keys=dead.keys,
        properties=properties,
        flag=dead.flag,
        sharding_key=dead.sharding_key,
    )


class RedriveProducer(Producer):
    """A producer that takes the message id from its caller."""

    async def send_as(self, message: Message, msg_id: str) -> SendReceipt:
        """Send a message with this id."""
        self._running_instance()
        return await self._send(message, system=SystemFields({names.UNIQ_KEY: msg_id}))


class Redrive:
    """Redrives the dead letters of one group."""

    def __init__(
        self,
        admin: Admin,
        producer: RedriveProducer | None,
        group: str,
        *,
        to: str | None = None,
        rate: float | None = None,
        limit: int | None = None,
    ) -> None:
        """`rate` is messages per second, `limit` the maximum to send. Without a producer it is a dry run."""
        self._admin = admin
        self._producer = producer
        self._group = group
        self._to = to
        self._period_s = None if not rate else 1 / rate
        self._left = limit
        self._next_at = 0.0
        self._topics: dict[str, bool] = {}

    async def run(self, report: Callable[[Step], None]) -> bool:
        """Go through all dead letters and report each; True if the limit ended it early."""
        topic = dead_letter_topic(self._group)
        if await self._admin.topic_route(topic) is None:
            raise NotFoundError(f"group {self._group} has no dead letters; see: cometmq dlq list")
        if self._producer is not None:
            await self._make_group()
        for queue in await self._admin.queues(topic):
            if await self._run_queue(queue, report):
                return True
        return False

    async def _make_group(self) -> None:
        group = progress_group(self._group)
        for address in (await self._admin.masters()).values():
            if group not in await self._admin.groups(address):
                await self._admin.create_group(group)
                return

    async def _run_queue(self, queue: MessageQueue, report: Callable[[Step], None]) -> bool:
        admin, group = self._admin, progress_group(self._group)
        end = await admin.max_offset(queue)
        offset = max(await admin.consumer_offset(group, queue) or 0, await admin.min_offset(queue))
        unbroken = True
        while offset < end:
            reply = await admin.read(queue, offset, max_messages=_PAGE)
            for dead in reply.messages:
                if dead.queue_offset >= end:
                    return False
                if self._left == 0:
                    return True
                step = await self._step(dead)
                unbroken = unbroken and step.outcome is not Outcome.FAILED
                if unbroken and self._producer is not None:
                    await admin.commit_offset(group, queue, dead.queue_offset + 1)
                report(step)
            if reply.next_offset <= offset:
                return False
            offset = reply.next_offset
        return False

    async def _step(self, dead: StoredMessage) -> Step:
        topic = self._to or origin_topic(dead)
        if topic is None:
            reason = "it does not say of which topic it was; choose one with --to"
            return Step(dead, Outcome.FAILED, None, reason)
        try:
            if not await self._exists(topic):
                reason = f"topic {topic} does not exist; create it, or choose another one with --to"
                return Step(dead, Outcome.FAILED, topic, reason)
            msg_id = redrive_id(dead)
            known = await self._admin.message_by_id(topic, msg_id)
            if known is not None and known.properties.get(REDRIVEN_FROM) == dead.offset_msg_id:
                return Step(dead, Outcome.ALREADY, topic)
            message = redriven(dead, topic)
            if self._left is not None:
                self._left -= 1
            if self._producer is None:
                return Step(dead, Outcome.WOULD_SEND, topic)
            await self._wait_for_turn()
            await self._producer.send_as(message, msg_id)
            return Step(dead, Outcome.SENT, topic)
        except MessageError as error:
            return Step(dead, Outcome.FAILED, topic, f"it cannot be sent as it is: {error}")
        except CometError as error:
            return Step(dead, Outcome.FAILED, topic, str(error))

    async def _exists(self, topic: str) -> bool:
        """Whether a topic exists; asked once per run, because brokers might create it by then."""
        if topic not in self._topics:
            self._topics[topic] = await self._admin.topic_route(topic) is not None
        return self._topics[topic]

    async def _wait_for_turn(self) -> None:
        if self._period_s is None:
            return
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(max(self._next_at - now, 0))
        self._next_at = max(self._next_at, now) + self._period_s
