"""Counting open transactions anew, at a start that finds no numbers, or none that can be read.

Rules kept here: what is in the half topic behind the place of the transaction group is open, unless the op
topic says that it has ended. What is held in memory is bounded: ends are read for some of them at a time.
"""

from __future__ import annotations

import asyncio

from cometmq.broker.restoring import Target
from cometmq.broker.topics.names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from cometmq.broker.topics.topics import Topics
from cometmq.broker.transactions.check import READ_AT_ONCE, WINDOW, TransactionChecking
from cometmq.broker.transactions.half_messages import target_of
from cometmq.model.errors import ProtocolError
from cometmq.store.message_store import MessageStore
from cometmq.wire.record.record import decode_record


async def count_open(topics: Topics, store: MessageStore, checking: TransactionChecking) -> dict[str, int]:
    """How many transactions of each topic are open."""
    counted: dict[str, int] = {}
    topic = topics.get(TRANS_HALF_TOPIC)
    for queue_id in range(1 if topic is None else topic.read_queue_nums):
        half, end = checking.place_in(TRANS_HALF_TOPIC, queue_id), checking.end_of(TRANS_HALF_TOPIC, queue_id)
        operation, window_end = checking.place_in(TRANS_OP_HALF_TOPIC, queue_id), 0
        ended: set[int] = set()
        while half < end:
            if half >= window_end:
                window_end = half + WINDOW
                ended = await checking.read_window(queue_id, operation, window_end)
            found = await store.get(TRANS_HALF_TOPIC, queue_id, half, READ_AT_ONCE)
            for view, place in zip(found.records, found.queue_offsets, strict=True):
                target = None if place in ended else _target_in(view)
                if target is not None:
                    counted[target[0]] = counted.get(target[0], 0) + 1
            if found.next_offset <= half:
                break
            half = found.next_offset
            await asyncio.sleep(0)  # others get their turn
    return counted


def _target_in(view: memoryview) -> Target | None:
    try:
        return target_of(decode_record(view).properties())
    except ProtocolError:
        return None
