"""Poison records, which a service of the broker cannot process: set aside, so that it goes on with the next.

Timers, delay levels, transactions and pops work through topics of their own, record by record. A record with
which that is impossible, now and for ever, is noted here and passed over. It stays in the commit log, where
it can be read by its offset.

Rules kept here:
- What passes by itself (a full disk, a store that takes nothing just now) is no reason to set a record aside;
  whoever meets it waits, longer and longer up to a limit (`BackOff`), and tries again.
- A record is noted once for each service, also if the service meets it again after a kill. `MOST` of them are
  kept, in a file of the store; then the oldest falls out. The numbers by service go on.
- A flood costs next to nothing: the file is written a moment after the first of many, and the log has a line
  for each of the first ones of a span, and one for all others.
"""

from __future__ import annotations

import asyncio
import logging
from typing import ClassVar, Final

import msgspec

from cometmq.broker.saved_tables import TableFiles
from cometmq.model.errors import CometError, StoreError
from cometmq.ports.clock import Clock
from cometmq.store.message_store import MessageStore
from cometmq.store.status import PutStatus
from cometmq.store.tables.tables import ConfigTable
from cometmq.wire.record.codec import Record

log = logging.getLogger("cometmq.broker")

TIMERS: Final = "timers"
DELAYS: Final = "delays"
TRANSACTIONS: Final = "transactions"
POPS: Final = "pops"

MOST: Final = 1000
"""The most records that are kept."""
SAVE_S: Final = 1.0
"""How long after the first of several records the table is saved."""
LINES: Final = 10
SPAN_S: Final = 10.0
"""Of each service the log has a line for the first `LINES` of a span, and one at its end for all others."""
MAX_REASON: Final = 200

HOPELESS: Final = frozenset(
    {
        PutStatus.MESSAGE_ILLEGAL,
        PutStatus.PROPERTIES_SIZE_EXCEEDED,
        PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED,
        PutStatus.WHEEL_TIMER_MSG_ILLEGAL,
        PutStatus.WHEEL_TIMER_NOT_ENABLE,
    }
)
"""The statuses of a put that never succeeds, however often it is tried."""


class UnprocessableError(CometError):
    """A record with which nothing can be done, ever; the message says why."""


class SetAsideRecord(msgspec.Struct, frozen=True, rename="camel"):
    """Which record, and why."""

    service: str
    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    store_timestamp: int
    set_aside_timestamp: int
    reason: str


class SetAsideTable(ConfigTable):
    """The saved table; the newest record is the last."""

    file_name: ClassVar[str] = "setAsideRecords.json"
    is_derived: ClassVar[bool] = True

    totals: dict[str, int] = msgspec.field(default_factory=dict)
    """By service: how many there were, ever."""
    records: list[SetAsideRecord] = msgspec.field(default_factory=list)


def is_passing(error: Exception) -> bool:
    """Whether the next try may succeed, because the trouble is not in the record."""
    return isinstance(error, OSError | MemoryError | StoreError)


def check_put(status: PutStatus) -> bool:
    """Whether a put succeeded; raises `UnprocessableError` if it never will."""
    if status in HOPELESS:
        raise UnprocessableError(f"the store does not take it: {status.value}")
    return status is PutStatus.PUT_OK


class BackOff:
    """How long to wait before something is tried once more: twice as long each time, up to a limit."""

    def __init__(self, first_s: float = 0.1, longest_s: float = 5.0) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    @property
    def is_first(self) -> bool:
        """Whether nothing failed since the last success."""
        return self._next_s == self._first_s

    def failed(self) -> float:
        """The pause before the next try."""
        wait_s, self._next_s = self._next_s, min(self._next_s * 2, self._longest_s)
        return wait_s

    def succeeded(self) -> None:
        self._next_s = self._first_s


class SetAside:
    """The records that were set aside; belongs to the event loop."""

    def __init__(self, clock: Clock, files: TableFiles, store: MessageStore) -> None:
        self._store = store
        self._clock = clock
        self.totals: dict[str, int] = {}
        """By service: how many there were, ever."""
        self.since_start = 0
        """How many there were since the start, of all services."""
        self._records: dict[tuple[str | int, ...], SetAsideRecord] = {}
        """By service and position, oldest first."""
        self._file = files.table(SetAsideTable, self.snapshot)
        self._saving: asyncio.TimerHandle | None = None
        self._span: asyncio.TimerHandle | None = None
        self._in_span: dict[str, int] = {}
        """By service: how many there were in this span."""

    @property
    def records(self) -> list[SetAsideRecord]:
        """The kept records, oldest first."""
        return list(self._records.values())

    # File

    def load(self) -> None:
        """Take over what was saved; this blocks."""
        saved = self._file.file.load()
        if saved is not None:
            self.totals = dict(saved.totals)
            self._records = {_key(each): each for each in saved.records[-MOST:]}

    def snapshot(self) -> SetAsideTable:
        return SetAsideTable(dict(self.totals), self.records)

    async def stop(self) -> None:
        """Save what is unsaved, for the last time."""
        if self._span is not None:
            self._span.cancel()
            self._end_span()
        if self._saving is not None:
            self._saving.cancel()
            self._save()
        await self._file.stop()

    def _save(self) -> None:
        self._saving = None
        self._file.changed()

    # Records

    def add_failed(
        self, service: str, topic: str, queue_id: int, queue_offset: int, error: Exception
    ) -> None:
        """Set the record of a queue entry aside, with which something failed; raise what may pass."""
        if is_passing(error):
            raise error
        self.add_entry(service, topic, queue_id, queue_offset, error)

    def add_record(self, service: str, record: Record, error: Exception) -> None:
        """Note a record that could be read."""
        self._add(
            service,
            record.topic,
            record.queue_id,
            record.queue_offset,
            record.physical_offset,
            record.store_timestamp_ms,
            error,
        )

    def add_entry(self, service: str, topic: str, queue_id: int, queue_offset: int, error: Exception) -> None:
        """Note a record that could not be read, by its queue entry."""
        queue = self._store.queues.find(topic, queue_id)
        unit = None if queue is None else queue.unit(queue_offset)
        physical_offset = -1 if unit is None else unit[0]
        stored_ms = None if unit is None else self._store.log.store_time(physical_offset)
        self._add(service, topic, queue_id, queue_offset, physical_offset, stored_ms or 0, error)

    def add_at(self, service: str, topic: str, physical_offset: int, error: Exception) -> None:
        """Note bytes of the commit log that are no record of a topic."""
        self._add(service, topic, -1, -1, physical_offset, 0, error)

    def _add(
        self,
        service: str,
        topic: str,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        stored_ms: int,
        error: Exception,
    ) -> None:
        now_ms, reason = self._clock.now_ms(), _reason_of(error)
        record = SetAsideRecord(
            service, topic, queue_id, queue_offset, physical_offset, stored_ms, now_ms, reason
        )
        key = _key(record)
        if key in self._records:
            return
        if len(self._records) >= MOST:
            del self._records[next(iter(self._records))]
        self._records[key] = record
        self.totals[service] = self.totals.get(service, 0) + 1
        self.since_start += 1
        loop = asyncio.get_running_loop()
        if self._saving is None:
            self._saving = loop.call_later(SAVE_S, self._save)
        if self._span is None:
            self._span = loop.call_later(SPAN_S, self._end_span)
        number = self._in_span[service] = self._in_span.get(service, 0) + 1
        if number <= LINES:
            log.error(
                "%s set a record aside, and go on: %s-%d, offset %d, at %d of the commit log: %s",
                *(service, topic, queue_id, queue_offset, physical_offset, reason),
            )

    def _end_span(self) -> None:
        in_span, self._in_span, self._span = self._in_span, {}, None
        for service, number in in_span.items():
            if number > LINES:
                log.error(
                    "%s set %d more records aside; see: cometmq store set-aside DIR", service, number - LINES
                )


def _key(record: SetAsideRecord) -> tuple[str | int, ...]:
    return record.service, record.topic, record.queue_id, record.queue_offset, record.commit_log_offset


def _reason_of(error: Exception) -> str:
    text = error.message if isinstance(error, CometError) else f"{type(error).__name__}: {error}"
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= MAX_REASON else text[: MAX_REASON - 1] + "…"
