"""One thing done to many, on several workers at once.

Syncs wait for the disk and not for a core, and a file system serves all that wait together: many at once take
little longer than one.

Rules kept here:
- Each worker gets a fixed share, so that what is queued does not grow with the work. Without workers, or with
  workers that do everything in place, the order is the same every time.
- The call ends when all of it has ended. A worker stops at the first thing that fails, the others go on, and
  the failure is raised in the end.
- Whoever calls must not be one of the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, wait
from typing import TypeVar

T = TypeVar("T")


class SideBySide:
    """Some workers for work that waits."""

    def __init__(self, workers: Sequence[Executor] = ()) -> None:
        self._workers = workers

    def each(self, act: Callable[[T], object], things: Sequence[T]) -> None:
        """Do something to each of them; blocks."""
        count = min(len(self._workers), len(things))
        if count <= 1:
            _act_on(act, things)
            return
        shares = [
            worker.submit(_act_on, act, things[number::count])
            for number, worker in enumerate(self._workers[:count])
        ]
        wait(shares)
        for share in shares:
            share.result()

    def dismiss(self) -> None:
        """Let the workers go; what they do is finished first."""
        for worker in self._workers:
            worker.shutdown()


def _act_on(act: Callable[[T], object], things: Sequence[T]) -> None:
    for thing in things:
        act(thing)
