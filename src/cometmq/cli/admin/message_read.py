"""Reading messages of a topic: the last ones, those of a time range, and new ones as they arrive.

Rules kept here:
- Reading commits no offset.
- Messages of several queues come in the order of their store times.
- At most `limit` messages are held at a time, and while following at most a page a queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Final

from cometmq.model.errors import NotFoundError, ResponseError

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin
    from cometmq.client.subscription import Expression
    from cometmq.model.message import StoredMessage
    from cometmq.model.queue import MessageQueue

PAGE: Final = 32
WAIT_MS: Final = 1000


async def read_range(
    admin: Admin, queue: MessageQueue, begin: int, end: int, expression: Expression
) -> AsyncIterator[StoredMessage]:
    """The messages of a queue between two offsets."""
    offset = begin
    while offset < end:
        reply = await admin.read(queue, offset, max_messages=PAGE, expression=expression)
        for message in reply.messages:
            if message.queue_offset >= end:
                return
            yield message
        if reply.next_offset <= offset:
            return
        offset = reply.next_offset


async def message_of_id(admin: Admin, msg_id: str, topic: str | None) -> StoredMessage:
    """The message with an offset id, or with this id of its producer in a topic."""
    found = None if topic is None else await admin.message_by_id(topic, msg_id)
    found = found or await _by_offset_id(admin, msg_id)
    if found is None:
        hint = "" if topic else "; if it is the producer's id, say --topic, too"
        raise NotFoundError(f"there is no message {msg_id}{hint}")
    return found


async def _by_offset_id(admin: Admin, msg_id: str) -> StoredMessage | None:
    """The message with an offset id; only brokers of this cluster are asked."""
    from msgspec.structs import replace

    from cometmq.wire.record.ids import IdError, decode_offset_id

    try:
        address = str(decode_offset_id(msg_id).store_host)
    except IdError:
        return None
    info = await admin.cluster_info()
    names = {
        where: name
        for name, broker in info.broker_addr_table.items()
        for where in broker.broker_addrs.values()
    }
    if address not in names:
        return None
    try:
        found = await admin.view_message(msg_id)
    except ResponseError:
        return None
    return replace(found, broker_name=names[address])


async def last_messages(
    admin: Admin, topic: str, count: int, expression: Expression
) -> tuple[list[StoredMessage], dict[MessageQueue, int]]:
    """The last messages of a topic that match, and the max offset of each queue."""
    found: list[StoredMessage] = []
    ends: dict[MessageQueue, int] = {}
    for queue in await admin.queues(topic):
        ends[queue] = end = await admin.max_offset(queue)
        first = await admin.min_offset(queue)
        of_queue: list[StoredMessage] = []
        span, below = max(count, 1), end
        while below > first and len(of_queue) < count:
            begin = max(below - span, first)
            page = [message async for message in read_range(admin, queue, begin, below, expression)]
            of_queue = page + of_queue
            below, span = begin, span * 2
        found += of_queue[-count:] if count else []
    return in_order(found)[-count:] if count else [], ends


async def messages_between(
    admin: Admin, topic: str, begin_ms: int, end_ms: int, limit: int, expression: Expression
) -> tuple[list[StoredMessage], bool]:
    """The messages of a topic that were stored in a time range, and whether there are more."""
    found: list[StoredMessage] = []
    for queue in await admin.queues(topic):
        begin = await admin.search_offset(queue, begin_ms)
        of_queue: list[StoredMessage] = []
        async for message in read_range(admin, queue, begin, await admin.max_offset(queue), expression):
            if message.store_timestamp_ms > end_ms or len(of_queue) > limit:
                break
            if message.store_timestamp_ms >= begin_ms:
                of_queue.append(message)
        found += of_queue
    return in_order(found)[:limit], len(found) > limit


async def follow(
    admin: Admin,
    offsets: dict[MessageQueue, int],
    expression: Expression,
    show: Callable[[Sequence[StoredMessage]], bool],
) -> None:
    """Show messages from these offsets on as they arrive, until `show` returns False."""

    async def next_of(queue: MessageQueue) -> tuple[MessageQueue, Sequence[StoredMessage]]:
        reply = await admin.read(
            queue, offsets[queue], max_messages=PAGE, expression=expression, wait_ms=WAIT_MS
        )
        offsets[queue] = reply.next_offset
        return queue, reply.messages

    waiting = {asyncio.ensure_future(next_of(queue)) for queue in offsets}
    try:
        while True:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            arrived = [await task for task in done]
            if not show(in_order([message for _, messages in arrived for message in messages])):
                return
            waiting |= {asyncio.ensure_future(next_of(queue)) for queue, _ in arrived}
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def in_order(messages: Sequence[StoredMessage]) -> list[StoredMessage]:
    """By store time, then by broker and physical offset."""
    return sorted(
        messages, key=lambda each: (each.store_timestamp_ms, each.broker_name, each.commit_log_offset)
    )
