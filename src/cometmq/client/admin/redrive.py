"""Dead letters sent to their topics once more, each of them once.

How far this is, is kept by the brokers: as the offsets that a consumer group of its own (`progress_group`)
has in the queues of the dead letters, committed after each message that was acknowledged. A dead letter
itself stays where it is until it expires; brokers cannot delete one.

Rules kept here:
- The message that is sent gets its id from the place of the dead letter, so the same dead letter always gets
  the same one. Before a message is sent, its topic is asked for that id: what a run sent and could not note
  any more, because it was interrupted or a broker lost its last offsets, is found there and not sent again.
- The offset of a queue never goes past a message that failed: the next run tries it again, and finds the ids
  of those behind it that were sent.
- Queues are read up to where they ended at the start: a message that fails again and comes back as a new dead
  letter is not sent round and round.
- One run at a time: two at once can both find that a message is not there yet.
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
from cometmq.client.names import DLQ_PREFIX, MAX_GROUP_LENGTH
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.send_request import SystemFields
from cometmq.client.producer.sender import SendReceipt
from cometmq.model import message_properties as names
from cometmq.model.errors import CometError, MessageError, NotFoundError
from cometmq.model.message import Message, StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.wire.record.ids import UniqueIdGenerator

REDRIVEN_FROM: Final = "REDRIVEN_FROM"
"""The property of a message that was sent once more: the offset id of its dead letter."""
_PREFIX: Final = "redrive-"
_PAGE: Final = 32
_DAY_MS: Final = 86_400_000


class Outcome(StrEnum):
    """What became of a dead letter."""

    SENT = "sent"
    ALREADY = "already"
    """An earlier run had sent it."""
    WOULD_SEND = "wouldSend"
    FAILED = "failed"


class Step(msgspec.Struct, frozen=True):
    """One dead letter, and what became of it."""

    dead: StoredMessage
    outcome: Outcome
    topic: str | None
    """Where it goes."""
    reason: str | None = None
    """Why it failed."""


def dead_letter_topic(group: str) -> str:
    return DLQ_PREFIX + group


def progress_group(group: str) -> str:
    """The group whose offsets say how far the dead letters of a group were sent once more."""
    name = _PREFIX + group
    if len(name) <= MAX_GROUP_LENGTH:
        return name
    digest = blake2b(group.encode(), digest_size=8).hexdigest()
    return f"{name[: MAX_GROUP_LENGTH - len(digest) - 1]}-{digest}"


def origin_topic(dead: StoredMessage) -> str | None:
    """The topic of which a dead letter was consumed in vain."""
    return dead.properties.get(names.DLQ_ORIGIN_TOPIC) or dead.properties.get(names.RETRY_TOPIC)


def redrive_id(dead: StoredMessage) -> str:
    """The id of the message that stands for a dead letter.

    It looks like every id, so that tools which read a time out of it find one, a little before the dead
    letter was stored; what is otherwise the process and a count is a digest of the place.
    """
    place = f"{dead.topic}/{dead.broker_name}/{dead.queue_id}/{dead.queue_offset}/{dead.store_timestamp_ms}"
    digest = blake2b(place.encode(), digest_size=8).digest()
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
    """The message that is sent for a dead letter: what the application had set, and where it comes from."""
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
    """A producer that is told the ids of its messages."""

    async def send_as(self, message: Message, msg_id: str) -> SendReceipt:
        """Send a message under this id."""
        self._running()
        return await self._send(message, self._timeout_s, system=SystemFields({names.UNIQ_KEY: msg_id}))


class Redrive:
    """Sends the dead letters of one group once more."""

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
        """`rate` is messages a second, `limit` the most that are sent; without a producer it only looks."""
        self._admin = admin
        self._producer = producer
        self._group = group
        self._to = to
        self._period_s = None if not rate else 1 / rate
        self._left = limit
        self._next_at = 0.0
        self._topics: dict[str, bool] = {}

    async def run(self, report: Callable[[Step], None]) -> bool:
        """Go through all dead letters and report each; True if the limit ended it before the last one."""
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
        """Whether a topic is there; asked once a run, as brokers might make it by themselves."""
        if topic not in self._topics:
            self._topics[topic] = await self._admin.topic_route(topic) is not None
        return self._topics[topic]

    async def _wait_for_turn(self) -> None:
        if self._period_s is None:
            return
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(max(self._next_at - now, 0))
        self._next_at = max(self._next_at, now) + self._period_s
