"""Messages that were put and that consumers may not see yet, kept ready for dispatch.

Rules kept here:
- Keeping them only saves reading them from the log again. Whatever is not kept is read there: parts of
  transactions, delayed messages, bytes of another log, and everything beyond a limit.
- Kept messages are values and copies: the caller may reuse its record and its buffers.
- Groups follow one another in the log without a gap. A group is dispatched as a whole, so a new one begins
  with each flush: the flush confirms the group before it.
- When the log is truncated, everything is forgotten.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from cometmq.model.names import DELAY_TOPIC
from cometmq.store.dispatch.dispatcher import Dispatcher
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.log.group_walk import QueueUnits, RecordGroup

MAX_UNCONFIRMED: Final = 65_536
"""How many messages are kept at most."""


class UnconfirmedMessages:
    """The groups that wait for confirmation; belongs to the writing thread."""

    def __init__(
        self, commit_log: CommitLog, dispatcher: Dispatcher, *, limit: int = MAX_UNCONFIRMED
    ) -> None:
        self._log = commit_log
        self._dispatcher = dispatcher
        self._limit = limit
        self._cuts = commit_log.cuts
        self._count = 0
        self._groups: deque[RecordGroup] = deque()
        self._open: RecordGroup | None = None
        """The last group, while it grows."""
        self._queues: dict[tuple[str, int], QueueUnits] = {}
        """The queues in it."""

    def add(self, group: RecordGroup) -> None:
        """Keep a group of plain messages."""
        if self._cuts != self._log.cuts:
            self.forget()
        queues = group.by_queue()
        if queues[0].topic == DELAY_TOPIC:
            return
        current = self._open
        if current is None or current.end != group.start or not self._continue(queues):
            self.close_group()
            if self._count >= self._limit:
                return
            current = self._open = RecordGroup(group.start, group.start)
            self._groups.append(current)
        for units in queues:
            known = self._queues.get((units.topic, units.queue_id))
            if known is None:
                self._queues[units.topic, units.queue_id] = units
                current.queues.append(units)
            else:
                known.units += units.units
                known.next_offset = units.next_offset
        current.keyed += group.keyed
        current.arrivals += [(*arrival[:-1], bytes(arrival[-1])) for arrival in group.arrivals]
        current.end = group.end
        current.last_stored_ms = group.last_stored_ms
        current.count += group.count

    def _continue(self, queues: list[QueueUnits]) -> bool:
        """Whether all queues go on where the open group ends."""
        known = ((units, self._queues.get((units.topic, units.queue_id))) for units in queues)
        return all(before is None or before.next_offset == units.first_offset for units, before in known)

    def close_group(self) -> None:
        """Let messages put from now on be confirmed apart from those put so far."""
        if self._open is not None:
            self._count += self._open.count
            self._open = None
            self._queues = {}

    def forget(self) -> None:
        """Leave everything to be read from the log."""
        self._groups.clear()
        self._open, self._queues = None, {}
        self._count = 0
        self._cuts = self._log.cuts

    def dispatch(self, confirmed: int) -> bool:
        """Dispatch the groups before an offset, and the log between them; False if something failed."""
        dispatcher, groups = self._dispatcher, self._groups
        if dispatcher.failure is not None or self._cuts != self._log.cuts:
            self.forget()
        while groups and groups[0].end <= confirmed:
            group = groups.popleft()
            if group is self._open:
                self.close_group()
            self._count -= group.count
            if group.start < dispatcher.position:
                continue  # it was read from the log
            if group.start > dispatcher.position and not dispatcher.catch_up(group.start):
                return False
            if not dispatcher.dispatch_group(group):
                return False
        return True

    def has(self, offset: int) -> bool:
        """Whether the next group contains a physical offset."""
        return bool(self._groups) and self._groups[0].start <= offset < self._groups[0].end
