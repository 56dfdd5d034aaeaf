"""Exactly-once writers: how far the sequence of each writer is, on any stop of the broker.

`wire/exactly_once.py` says what a sequence is: the numbered messages of a query for a topic, by partition.

Rules kept here:
- In a sequence, batches follow one another, and in a batch messages do, without a gap. A message that is
  stored already, or would leave a gap, is not stored. A later batch says that all earlier ones are complete.
- Messages are stored only after the same messages as the first time: the digests have to agree.
- The log alone decides. The saved table is a shortcut: the sequences at an offset of the log, written when
  the log is on the disk up to there. A start walks the log after that offset; it walks the whole log if the
  table does not fit the log or cannot be read.
- The table is saved before the first message is taken. So a broker without the file has no such messages, and
  walks nothing.
- The table is bounded. A sequence that nobody wrote to for 30 days is forgotten; when there are too many, so
  is the oldest, with a warning. Its messages can be stored again if its writer repeats its last batch.
"""

from __future__ import annotations

import asyncio
import logging
from typing import ClassVar, Final

import msgspec

from cometmq.broker.saved_tables import TableFiles
from cometmq.broker.send.safety import SendSafety
from cometmq.model.errors import CometError
from cometmq.model.message_properties import ONCE, REAL_TOPIC
from cometmq.model.names import DLQ_PREFIX, RETRY_PREFIX
from cometmq.ports.clock import Clock
from cometmq.store.log.walk import MarkedWalk
from cometmq.store.message_store import MessageStore
from cometmq.store.status import PutStatus
from cometmq.store.tables.tables import ConfigTable
from cometmq.wire.codes import ResponseCode
from cometmq.wire.exactly_once import NO_BATCH, ONCE_MARKER, UNKNOWN_DIGEST, OnceStep, read_step
from cometmq.wire.record.codec import Record
from cometmq.wire.record.properties import find_property
from cometmq.wire.record.walk import WalkEnd

log = logging.getLogger("cometmq.broker")

MAX_SEQUENCES: Final = 20_000
IDLE_MS: Final = 30 * 24 * 3600 * 1000
_WARN_EVERY: Final = 1000
SequenceKey = tuple[str, str, int]
"""Query, topic and partition."""
SAVE_S: Final = 10.0
_COPIES: Final = (RETRY_PREFIX, DLQ_PREFIX)


class WriterSequence(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """How far a sequence is."""

    query: str
    topic: str
    partition: int
    batch: int = NO_BATCH
    next_sequence: int = 0
    digest: int = 0
    shards: int = 0
    end_offset: int = 0
    """Where its last message ends in the log."""
    stored_ms: int = 0

    @property
    def key(self) -> SequenceKey:
        return self.query, self.topic, self.partition


class OnceTable(ConfigTable):
    """The saved sequences, true for the log up to an offset."""

    is_derived: ClassVar[bool] = True
    file_name: ClassVar[str] = "exactlyOnce.json"
    is_pretty: ClassVar[bool] = False

    log_offset: int = 0
    sequences: list[WriterSequence] = msgspec.field(default_factory=list, name="lanes")


class OnceRefused(CometError):  # noqa: N818 - an answer, not a defect
    """A request that does not fit what its sequence has."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ResponseCode.ILLEGAL_OPERATION)


class WriterSequences:
    """The sequences of one broker, those that were written to last at the end."""

    def __init__(self) -> None:
        self._sequences: dict[SequenceKey, WriterSequence] = {}
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._sequences)

    def all(self) -> list[WriterSequence]:
        return list(self._sequences.values())

    def load(self, sequences: list[WriterSequence]) -> None:
        self._sequences = {sequence.key: sequence for sequence in sequences}

    def get(self, query: str, topic: str, partition: int) -> WriterSequence:
        """The sequence; one that begins if it is not known."""
        return self._sequences.get((query, topic, partition)) or WriterSequence(query, topic, partition)

    def missing_from(self, sequence: WriterSequence, step: OnceStep) -> int | None:
        """The number of the first message of a step that the sequence lacks; None if it cannot take any.

        That is so when it has them all, and when others are missing before them.
        """
        if step.batch != sequence.batch:
            return 0 if step.batch > sequence.batch and step.first == 0 else None
        if not step.first <= sequence.next_sequence < step.end:
            return None
        return sequence.next_sequence

    def check_digest(self, sequence: WriterSequence, step: OnceStep, digest: int) -> None:
        """Refuse messages that came after others the first time; `digest` is what the writer had before."""
        known = sequence.digest if step.batch == sequence.batch else 0
        if digest != known and known != UNKNOWN_DIGEST:
            raise OnceRefused(
                f"batch {step.batch} of query {step.query}, partition {step.partition}, has "
                f"{sequence.next_sequence} messages in topic {sequence.topic}, and this try has others, or "
                "another order; the rows of a partition have to be the same whenever they are computed: sort "
                "them, and keep the number of partitions"
            )

    def advance(
        self, sequence: WriterSequence, step: OnceStep, end_offset: int, stored_ms: int
    ) -> WriterSequence:
        """All messages of a step are in the log."""
        return self._put(sequence.topic, step, step.end, end_offset, stored_ms)

    def found(self, topic: str, step: OnceStep, start_offset: int, end_offset: int, stored_ms: int) -> None:
        """One message of a step was found in the log, in the log's order."""
        sequence = self.get(step.query, topic, step.partition)
        if step.batch < sequence.batch:
            return
        if step.batch > sequence.batch or step.first >= sequence.next_sequence:
            number = step.first
        elif sequence.next_sequence < step.end and start_offset == sequence.end_offset:
            number = sequence.next_sequence  # the next message of the same request
        else:
            return  # a copy: of a delayed message when it is delivered, for example
        self._put(topic, step, number + 1, end_offset, stored_ms)

    def _put(
        self, topic: str, step: OnceStep, following: int, end_offset: int, stored_ms: int
    ) -> WriterSequence:
        """The messages of a step before the number `following` are in the log."""
        sequence = WriterSequence(
            step.query,
            topic,
            step.partition,
            step.batch,
            following,
            step.digest if following == step.end else UNKNOWN_DIGEST,
            step.shards,
            end_offset,
            stored_ms,
        )
        key = sequence.key
        self._sequences.pop(key, None)
        if len(self._sequences) >= MAX_SEQUENCES:
            oldest = next(iter(self._sequences))
            del self._sequences[oldest]
            if self._forgotten % _WARN_EVERY == 0:
                log.warning(
                    "more than %d sequences of exactly-once writers; that of query %s, topic %s, partition "
                    "%d is forgotten: use fewer partitions",
                    *(MAX_SEQUENCES, *oldest),
                )
            self._forgotten += 1
        self._sequences[key] = sequence
        return sequence

    def forget_idle(self, now_ms: int) -> int:
        """Forget idle sequences; returns how many."""
        idle = [
            sequence.key for sequence in self._sequences.values() if now_ms - sequence.stored_ms > IDLE_MS
        ]
        for key in idle:
            del self._sequences[key]
        return len(idle)


class ExactlyOnce:
    """The sequences, on the disk; belongs to the event loop but for `load`."""

    def __init__(self, safety: SendSafety, clock: Clock, files: TableFiles, store: MessageStore) -> None:
        self._safety = safety
        self._store = store
        self._clock = clock
        self.sequences = WriterSequences()
        self._safe = OnceTable()
        """The table that may be saved: the log is on the disk up to its offset."""
        self._file = files.table(OnceTable, lambda: self._safe)
        self._is_flushing = False
        self.is_dirty = False
        """Whether sequences went on since they were last copied to be saved."""
        self.is_ready = False
        """Whether a table is on the disk, so that messages can be taken."""

    def load(self) -> None:
        """Read the saved table, and the log after it; blocks."""
        saved = self._file.file.load()
        if saved is None and self._file.file.is_begun_anew:
            saved = OnceTable()  # which is that of the beginning of the log
        if saved is None:
            return
        self.is_ready = True
        reader = self._store.log
        start = max(saved.log_offset, reader.min_offset)
        if start <= reader.max_offset:
            self.sequences.load(saved.sequences)
            if self._walk(start):
                return
        log.warning("%s does not fit the log; the whole log is read", self._file.file.path)
        self.sequences.load([])
        self._walk(reader.min_offset)

    def _walk(self, start: int) -> bool:
        """Find the messages of sequences from an offset on; False if there is no record at that offset."""
        walk = MarkedWalk(self._store.log.files, start, ONCE_MARKER)
        for record in walk:
            self._found(record)
            self.is_dirty = True
        return walk.end is not WalkEnd.MALFORMED or walk.position > start

    def _found(self, record: Record) -> None:
        block = record.properties_block
        step = read_step(find_property(block, ONCE) or "")
        topic = find_property(block, REAL_TOPIC) or record.topic
        if step is not None and not topic.startswith(_COPIES) and not record.topic.startswith(_COPIES):
            start = record.physical_offset
            self.sequences.found(topic, step, start, start + record.total_size, record.store_timestamp_ms)

    # Saving

    async def prepare(self) -> None:
        """Make sure that a table is on the disk; raises `StoreError` if it cannot be put there."""
        if not self.is_ready:
            # Nothing of the kind is in the log yet, whether that is on the disk or not.
            self._safe = OnceTable(self._store.log.max_offset)
            self._file.changed()
            await self._file.saved()
            self.is_ready = True

    def save_soon(self) -> None:
        """Save the sequences, if they went on, when the log is on the disk as far as they tell of it."""
        if self.sequences.forget_idle(self._clock.now_ms()):
            self.is_dirty = True
        if self.is_dirty and not self._is_flushing:
            self._is_flushing = True
            self.is_dirty = False
            offset = self._store.log.max_offset
            table = OnceTable(offset, self.sequences.all())
            self._store.flusher.when_flushed(offset, lambda status: self._flushed(table, status))

    def _flushed(self, table: OnceTable, status: PutStatus) -> None:
        self._is_flushing = False
        if status is PutStatus.PUT_OK:
            self._safe = table
            self._file.changed()
        else:
            self.is_dirty = True

    async def save(self) -> None:
        """Save what there is, for the last time; the log is on the disk."""
        if self.is_dirty:
            offset = self._store.log.max_offset
            if self._store.flusher.flushed_offset >= offset:
                self.is_dirty = False
                self._safe = OnceTable(offset, self.sequences.all())
                self._file.changed()
        await self._file.stop()

    async def wait_safe(self, end_offset: int) -> bool:
        """Wait until what was put is as safe as the settings ask for; False if that took too long."""
        if not self._safety.answers_wait:
            return True
        future: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
        self._safety.when_safe(end_offset, future.set_result)
        return await future is PutStatus.PUT_OK
