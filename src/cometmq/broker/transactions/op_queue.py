"""The op queue: ended transactions, in memory and in the op topic.

Rules kept here:
- An end is noted by the queue offset of its half message. Notes are collected and put into the op topic
  together: when they are long enough, or when the first of them has waited long enough.
- What could not be put is put with the next ones. There is a limit to that, and beyond it no end is accepted.
- A half message that was put elsewhere, as a copy or as one that is given up, is noted like one that has
  ended: after a kill, its copy is not made a second time.
- A transaction ends once. Which copy of its half message the producer names does not matter: the end of one
  is the end of all. That is known for as many transactions as `REMEMBERED`; of older ones, and after a
  restart, the op topic knows the copies that were named.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from cometmq.broker.send.properties import stored_block
from cometmq.broker.settings import Settings
from cometmq.model.message import Host
from cometmq.model.message_properties import TAGS, WAIT
from cometmq.model.names import TRANS_OP_HALF_TOPIC
from cometmq.model.sysflag import TransactionType
from cometmq.ports.clock import Clock
from cometmq.store.message_store import MessageStore
from cometmq.store.status import PutStatus
from cometmq.wire.record.codec import Record
from cometmq.wire.record.ids import pack_host
from cometmq.wire.record.properties import find_property

log = logging.getLogger("cometmq.broker")

T = TypeVar("T")

ENDED_TAG: Final = "d"
REMEMBERED: Final = 20_000
MOST_UNWRITTEN: Final = REMEMBERED
"""With this many notes that could not be put, no end is accepted."""

_MAX_DIGITS: Final = 18
"""No queue ever has an offset with more."""

QueuePosition = tuple[int, int]
"""Queue id and queue offset of a half message."""


class Memory(Generic[T]):
    """A table that knows at least the last `REMEMBERED` positions, and at most twice as many.

    Two tables, of which the older one is forgotten as a whole: to take the oldest entry out of a table, again
    and again, takes longer the larger it is.
    """

    def __init__(self) -> None:
        self._new: dict[QueuePosition, T] = {}
        self._old: dict[QueuePosition, T] = {}

    def get(self, position: QueuePosition) -> T | None:
        value = self._new.get(position)
        return self._old.get(position) if value is None else value

    def put(self, position: QueuePosition, value: T) -> None:
        if len(self._new) >= REMEMBERED:
            self._old, self._new = self._new, {}
        self._new[position] = value

    def take(self, position: QueuePosition) -> T | None:
        """Remove and return a value."""
        value = self._new.pop(position, None)
        older = self._old.pop(position, None)
        return older if value is None else value


class OpQueue:
    """Notes of ended transactions; belongs to the event loop."""

    def __init__(self, settings: Settings, clock: Clock, host: Host, store: MessageStore) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        self._host = pack_host(host)
        self._block = stored_block({WAIT: "true", TAGS: ENDED_TAG})
        self._unwritten: dict[int, list[int]] = {}
        """By queue: ends that are not in the op topic yet."""
        self._lengths: dict[int, int] = {}
        """By queue: how long their text is."""
        self._count = 0
        """How many these are in all queues."""
        self._timer: asyncio.TimerHandle | None = None
        self._outcomes: Memory[TransactionType] = Memory()
        self._copies: Memory[int] = Memory()
        """By position: the queue offset of the next copy of the half message."""
        self.on_end: Callable[[int, int], None] | None = None
        """Called with queue and offset of each half message that ends, while somebody wants to know."""
        self._is_closed = False

    # What is known

    def outcome(self, queue_id: int, offset: int) -> TransactionType | None:
        """How a transaction ended; None if it is open, or if that is forgotten."""
        return self._outcomes.get((queue_id, offset))

    @property
    def is_full(self) -> bool:
        """Whether no end can be noted any more."""
        return self._count >= MOST_UNWRITTEN or self._is_closed

    def copied(self, queue_id: int, offset: int, copy_offset: int) -> None:
        """A half message was put once more."""
        self._copies.put((queue_id, offset), copy_offset)

    def moved(self, queue_id: int, offset: int) -> None:
        """Another message stands for a half message from now on; its transaction is still open."""
        self._write_soon(queue_id, offset)

    # Ends

    def end(self, queue_id: int, offset: int, outcome: TransactionType) -> None:
        """A transaction has ended, whichever copy of its half message was named."""
        self._note(queue_id, offset, outcome)
        newest = offset
        while (copy := self._copies.take((queue_id, newest))) is not None:
            newest = copy
            self._outcomes.put((queue_id, newest), outcome)
        if newest != offset:
            self._note(queue_id, newest, outcome)

    def _note(self, queue_id: int, offset: int, outcome: TransactionType) -> None:
        self._outcomes.put((queue_id, offset), outcome)
        if self.on_end is not None:
            self.on_end(queue_id, offset)
        self._write_soon(queue_id, offset)

    def _write_soon(self, queue_id: int, offset: int) -> None:
        unwritten = self._unwritten.get(queue_id)
        if unwritten is None:
            unwritten = self._unwritten[queue_id] = []
        unwritten.append(offset)
        self._count += 1
        length = self._lengths[queue_id] = self._lengths.get(queue_id, 0) + len(str(offset)) + 1
        if length > self._settings.broker.transaction_op_msg_max_size:
            self.write(queue_id)
        elif self._timer is None:
            self._write_later()

    def _write_later(self) -> None:
        interval_s = self._settings.broker.transaction_op_batch_interval / 1000
        self._timer = asyncio.get_running_loop().call_later(interval_s, self.write_all)

    def write_all(self) -> None:
        """Put all notes into the op topic."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for queue_id in list(self._unwritten):
            self.write(queue_id)
        if self._unwritten:
            self._write_later()

    def write(self, queue_id: int) -> None:
        """Put the notes of one queue into the op topic; they stay if that fails."""
        most = max(self._settings.broker.transaction_op_msg_max_size, 1)
        unwritten = self._unwritten.pop(queue_id, [])
        self._lengths.pop(queue_id, None)
        while unwritten:
            body, count = _text_of(unwritten, most)
            status = self._store.put(self._operation(queue_id, body)).status
            if status is not PutStatus.PUT_OK:
                log.warning("ends of transactions could not be put yet: %s", status.value)
                self._unwritten[queue_id] = unwritten
                self._lengths[queue_id] = 0  # the next try is when the timer is over, not at the next end
                return
            del unwritten[:count]
            self._count -= count

    def _operation(self, queue_id: int, body: bytes) -> Record:
        return Record(
            TRANS_OP_HALF_TOPIC,
            body,
            self._block,
            queue_id=queue_id,
            born_timestamp_ms=self._clock.now_ms(),
            born_host=self._host,
        )

    def stop(self) -> None:
        """Put what is noted, for the last time."""
        self._is_closed = True
        self.write_all()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def read_ends(operation: Record) -> Iterator[int]:
    """The half messages that a message of the op topic says have ended."""
    if find_property(operation.properties_block, TAGS) != ENDED_TAG:
        return
    for item in bytes(operation.body).split(b","):
        if item.isdigit() and len(item) <= _MAX_DIGITS:
            yield int(item)


def _text_of(offsets: list[int], most: int) -> tuple[bytes, int]:
    """The text of as many offsets as one message takes, and how many these are."""
    items: list[str] = []
    length = 0
    for offset in offsets:
        if length >= most:
            break
        items.append(f"{offset},")
        length += len(items[-1])
    return "".join(items).encode(), len(items)
