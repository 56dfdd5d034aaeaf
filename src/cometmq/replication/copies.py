"""Sends that wait until enough replicas have them.

Rules kept here:
- The master is one copy, every replica whose acknowledgement covers the end of the message is another one.
- Several connections from one host count as one replica, the newest: an old one may be left over from before
  the slave restarted. Connections from this machine itself are never left over, and count each.
- Sends are released in the order of their offsets, and each fails at its own deadline.
- A connection that ends takes its acknowledgement along.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable
from heapq import heappop, heappush

log = logging.getLogger("cometmq.replication")

Done = Callable[[bool], None]


class _Waiting:
    """A send; `done` is None when it was answered."""

    __slots__ = ("done", "need", "target")

    def __init__(self, target: int, need: int, done: Done) -> None:
        self.target = target
        self.need = need
        self.done: Done | None = done

    def __lt__(self, other: _Waiting) -> bool:
        return self.target < other.target


class Copies:
    """The replicas of a master, and who waits for them."""

    def __init__(self) -> None:
        self._acks: dict[Hashable, tuple[Hashable, int]] = {}
        """By connection, in the order of their beginning: the replica, and what it has acknowledged."""
        self._levels: list[int] = []
        """The acknowledgements of all replicas, the largest first."""
        self._by_target: list[_Waiting] = []
        self._by_deadline: list[tuple[float, int, _Waiting]] = []
        self._count = 0

    def acknowledged(self, connection: Hashable, replica: Hashable, offset: int) -> None:
        """A replica has the log up to an offset."""
        self._acks[connection] = replica, offset
        self._reorder()
        self.release()

    @property
    def connections(self) -> Collection[Hashable]:
        """The connections that count."""
        return self._acks.keys()

    def lost(self, connection: Hashable) -> None:
        """A connection has ended."""
        if self._acks.pop(connection, None) is not None:
            self._reorder()

    def _reorder(self) -> None:
        newest = dict(self._acks.values())
        self._levels = sorted(newest.values(), reverse=True)

    def count(self, offset: int) -> int:
        """How many copies there are of the log up to an offset, with the master's."""
        return 1 + sum(level >= offset for level in self._levels)

    def has(self, target: int, need: int) -> bool:
        """Whether there are so many copies of the log up to an offset."""
        return need <= 1 or (len(self._levels) >= need - 1 and self._levels[need - 2] >= target)

    def wait(self, target: int, need: int, deadline: float, done: Done) -> None:
        """Call back with True when there are so many copies, or with False after the deadline."""
        if self.has(target, need):
            done(True)
            return
        waiting = _Waiting(target, need, done)
        heappush(self._by_target, waiting)
        self._count += 1
        heappush(self._by_deadline, (deadline, self._count, waiting))

    def release(self) -> None:
        """Answer everybody who has enough copies."""
        waiting = self._by_target
        while waiting and (waiting[0].done is None or self.has(waiting[0].target, waiting[0].need)):
            _answer(heappop(waiting), True)
        self._drop_answered()

    def expire(self, now: float) -> None:
        """Answer everybody whose deadline has passed."""
        while self._by_deadline and self._by_deadline[0][0] <= now:
            _answer(heappop(self._by_deadline)[2], False)
        while self._by_target and self._by_target[0].done is None:
            heappop(self._by_target)
        self._drop_answered()

    def _drop_answered(self) -> None:
        while self._by_deadline and self._by_deadline[0][2].done is None:
            heappop(self._by_deadline)

    @property
    def next_deadline(self) -> float | None:
        """When `expire` has something to do."""
        return self._by_deadline[0][0] if self._by_deadline else None


def _answer(waiting: _Waiting, enough: bool) -> None:
    done, waiting.done = waiting.done, None
    if done is not None:
        try:
            done(enough)
        except Exception:  # one waiter's defect must not cost the others their answers
            log.exception("a waiter could not be told about its copies")
