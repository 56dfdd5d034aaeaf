"""Notes of messages that were put and may not be shown to consumers yet.

Rules kept here:
- Notes only save reading messages in the log again. What is not noted is read there: parts of transactions,
  delayed messages, bytes of another log, and everything beyond a limit.
- A note has values, and copies of what is in somebody's buffer: who put a message may use its record again.
- Messages are noted in groups that follow one another in the log without a gap. A group is dispatched as a
  whole, so a new one is begun when a flush begins: that flush confirms what is in the one before.
- When the log is cut off, what was behind is not there any more, and all notes are forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cometmq.model.names import DELAY_TOPIC
from cometmq.store.dispatch.dispatcher import BatchUnits, Dispatcher
from cometmq.store.dispatch.rules import Values
from cometmq.store.log.group_walk import QueueRun, RecordGroup
from cometmq.store.log.growing_log import GrowingLog
from cometmq.store.queue.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from cometmq.store.put.runs import RunUnit

MOST_NOTED: Final = 65_536
"""How many messages are noted at most."""


class PutNotes:
    """What the writer noted; belongs to its thread."""

    def __init__(self, commit_log: GrowingLog, dispatcher: Dispatcher, *, most: int = MOST_NOTED) -> None:
        self._log = commit_log
        self._dispatcher = dispatcher
        self._most = most
        self._cuts = commit_log.cuts
        self._count = 0
        self._groups: deque[RecordGroup] = deque()
        self._open: RecordGroup | None = None
        """The last of them, while it grows."""
        self._runs: dict[ConsumeQueue, QueueRun] = {}
        """The queues in it."""

    def add(
        self,
        queue: ConsumeQueue,
        start: int,
        size: int,
        queue_offset: int,
        stored_ms: int,
        values: Values,
        block: bytes | memoryview,
    ) -> None:
        """Note a message of no transaction."""
        group = self._open
        run = self._runs.get(queue)
        if group is None or group.end != start or run is None or run.next_offset != queue_offset:
            run = self._run_for(queue, start, queue_offset)
            group = self._open
            if run is None or group is None:
                return
        code, unique_key, keys, _ = values
        run.next_offset = queue_offset + 1
        run.units += (start, size, code)
        if unique_key or keys:
            group.keyed.append((queue.topic, unique_key, keys, start, stored_ms))
        if self._dispatcher.arrivals:
            group.arrivals.append((queue.topic, queue.queue_id, queue_offset, code, stored_ms, bytes(block)))
        group.end = start + size
        group.last_stored_ms = stored_ms
        group.count += 1

    def add_run(self, units: Sequence[RunUnit], stored_ms: int) -> None:
        """Note the messages of a run."""
        for queue, start, size, code, queue_offset, unique_key, keys, block in units:
            self.add(queue, start, size, queue_offset, stored_ms, (code, unique_key, keys, False), block)

    def add_batch(self, queue: ConsumeQueue, batch: BatchUnits) -> None:
        """Note the messages of a batch."""
        run = self._run_for(queue, batch.starts[0], batch.queue_offset)
        group = self._open
        if run is None or group is None:
            return
        run.next_offset = batch.queue_offset + len(batch.sizes)
        for unit in zip(batch.starts, batch.sizes, batch.codes, strict=True):
            run.units += unit
        group.keyed += batch.keyed
        if self._dispatcher.arrivals:
            messages = zip(batch.codes, batch.blocks, strict=True)
            for offset, (code, block) in enumerate(messages, batch.queue_offset):
                where = queue.topic, queue.queue_id, offset
                group.arrivals.append((*where, code, batch.stored_ms, bytes(block)))
        group.end = batch.end
        group.last_stored_ms = batch.stored_ms
        group.count += len(batch.sizes)

    def _run_for(self, queue: ConsumeQueue, start: int, queue_offset: int) -> QueueRun | None:
        """The run that a message goes into, in a new group if need be; None if it is not to be noted."""
        if self._cuts != self._log.cuts:
            self.forget()
        if queue.topic == DELAY_TOPIC:
            return None
        group, run = self._open, self._runs.get(queue)
        if group is None or group.end != start or (run is not None and run.next_offset != queue_offset):
            self.close_group()
            if self._count >= self._most:
                return None
            self._open = RecordGroup(start)
            self._groups.append(self._open)
            group, run = self._open, None
        if run is None:
            run = self._runs[queue] = QueueRun(queue.topic, queue.queue_id)
            run.first_offset = run.next_offset = queue_offset
            group.runs.append(run)
        return run

    def close_group(self) -> None:
        """Let what is noted next be confirmed apart from what was noted so far."""
        if self._open is not None:
            self._count += self._open.count
            self._open = None
            self._runs = {}

    def forget(self) -> None:
        """Leave everything to be read in the log."""
        self._groups.clear()
        self._open, self._runs = None, {}
        self._count = 0
        self._cuts = self._log.cuts

    def dispatch(self, confirmed: int) -> bool:
        """Dispatch the groups before an offset, and what lies between them; False if something failed."""
        dispatcher, groups = self._dispatcher, self._groups
        if dispatcher.failure is not None or self._cuts != self._log.cuts:
            self.forget()
        while groups and groups[0].end <= confirmed:
            group = groups.popleft()
            if group is self._open:
                self.close_group()
            self._count -= group.count
            if group.start < dispatcher.position:
                continue  # it was read in the log
            if group.start > dispatcher.position and not dispatcher.catch_up(group.start):
                return False
            if not dispatcher.dispatch_group(group):
                return False
        return True

    def has(self, offset: int) -> bool:
        """Whether the next group has what lies at an offset."""
        return bool(self._groups) and self._groups[0].start <= offset < self._groups[0].end
