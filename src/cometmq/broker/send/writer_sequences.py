"""How far the lanes of exactly-once writers are: pure tables and rules; see `wire/exactly_once.py` for lanes.

Rules kept here:
- In a lane, batches follow one another, and in a batch messages do, without a gap. What a lane has already is
  not taken again; what would leave a gap is not taken either. A later batch says that all earlier ones are
  complete.
- Messages are taken only behind those that the writer had in front of them the first time: the digests have
  to agree.
- The table is bounded. A lane that nobody wrote to for 30 days is forgotten; when there are too many, so is
  the one that nobody wrote to for the longest time, with a warning. What a forgotten lane had can be stored
  again if its writer repeats its last batch.
"""

from __future__ import annotations

import logging
from typing import ClassVar, Final

import msgspec

from cometmq.model.errors import CometError
from cometmq.store.tables.tables import ConfigTable
from cometmq.wire.codes import ResponseCode
from cometmq.wire.exactly_once import NO_BATCH, UNKNOWN_DIGEST, OnceStep

log = logging.getLogger("cometmq.broker")

MAX_LANES: Final = 20_000
IDLE_MS: Final = 30 * 24 * 3600 * 1000
_WARN_EVERY: Final = 1000

LaneKey = tuple[str, str, int]
"""Query, topic and partition."""


class Lane(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """How far a lane is."""

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
    def key(self) -> LaneKey:
        return self.query, self.topic, self.partition


class OnceTable(ConfigTable):
    """What is saved of the lanes: true for the log up to an offset."""

    is_derived: ClassVar[bool] = True
    file_name: ClassVar[str] = "exactlyOnce.json"
    is_pretty: ClassVar[bool] = False

    log_offset: int = 0
    lanes: list[Lane] = msgspec.field(default_factory=list)


class OnceRefused(CometError):  # noqa: N818 - an answer, not a defect
    """A request that does not fit what its lane has."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ResponseCode.ILLEGAL_OPERATION)


class OnceLanes:
    """The lanes of one broker, those that were written to last at the end."""

    def __init__(self) -> None:
        self._lanes: dict[LaneKey, Lane] = {}
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._lanes)

    def all(self) -> list[Lane]:
        return list(self._lanes.values())

    def load(self, lanes: list[Lane]) -> None:
        self._lanes = {lane.key: lane for lane in lanes}

    def get(self, query: str, topic: str, partition: int) -> Lane:
        """The lane; one that begins if it is not known."""
        return self._lanes.get((query, topic, partition)) or Lane(query, topic, partition)

    def missing_from(self, lane: Lane, step: OnceStep) -> int | None:
        """The number of the first message of a step that the lane lacks; None if it cannot take any.

        That is so when it has them all, and when others are missing before them.
        """
        if step.batch != lane.batch:
            return 0 if step.batch > lane.batch and step.first == 0 else None
        if not step.first <= lane.next_sequence < step.end:
            return None
        return lane.next_sequence

    def check_digest(self, lane: Lane, step: OnceStep, digest: int) -> None:
        """Refuse messages that came behind others the first time; `digest` is what the writer had before."""
        known = lane.digest if step.batch == lane.batch else 0
        if digest != known and known != UNKNOWN_DIGEST:
            raise OnceRefused(
                f"batch {step.batch} of query {step.query}, partition {step.partition}, has "
                f"{lane.next_sequence} messages in topic {lane.topic}, and this try has others, or another "
                "order; the rows of a partition have to be the same whenever they are computed: sort them, "
                "and keep the number of partitions"
            )

    def advance(self, lane: Lane, step: OnceStep, end_offset: int, stored_ms: int) -> Lane:
        """All messages of a step are in the log."""
        advanced = Lane(
            step.query,
            lane.topic,
            step.partition,
            step.batch,
            step.end,
            step.digest,
            step.shards,
            end_offset,
            stored_ms,
        )
        self._put(advanced)
        return advanced

    def found(self, topic: str, step: OnceStep, start_offset: int, end_offset: int, stored_ms: int) -> None:
        """One message of a step was found in the log, in the log's order."""
        lane = self.get(step.query, topic, step.partition)
        if step.batch < lane.batch:
            return
        if step.batch > lane.batch or step.first >= lane.next_sequence:
            number = step.first
        elif lane.next_sequence < step.end and start_offset == lane.end_offset:
            number = lane.next_sequence  # the next message of the same request
        else:
            return  # a copy: of a delayed message when it is delivered, for example
        is_last = number + 1 == step.end
        self._put(
            Lane(
                step.query,
                topic,
                step.partition,
                step.batch,
                number + 1,
                step.digest if is_last else UNKNOWN_DIGEST,
                step.shards,
                end_offset,
                stored_ms,
            )
        )

    def _put(self, lane: Lane) -> None:
        key = lane.key
        self._lanes.pop(key, None)
        if len(self._lanes) >= MAX_LANES:
            oldest = next(iter(self._lanes))
            del self._lanes[oldest]
            if self._forgotten % _WARN_EVERY == 0:
                log.warning(
                    "more than %d lanes of exactly-once writers; that of query %s, topic %s, partition %d is "
                    "forgotten: use fewer partitions",
                    *(MAX_LANES, *oldest),
                )
            self._forgotten += 1
        self._lanes[key] = lane

    def forget_idle(self, now_ms: int) -> int:
        """Forget the lanes that are no longer written to; the answer is how many these were."""
        idle = [lane.key for lane in self._lanes.values() if now_ms - lane.stored_ms > IDLE_MS]
        for key in idle:
            del self._lanes[key]
        return len(idle)
