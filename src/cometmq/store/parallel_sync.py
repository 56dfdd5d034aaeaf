"""Syncing many files in parallel. Syncs wait for the disk: many at once take little longer than one.

Rules kept here:
- Each worker gets a fixed share. Without workers, or with workers that act in place, the order is fixed.
- The call returns when all workers have finished. A worker stops at its first failure, which is raised then.
- The caller must not be one of the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, wait
from typing import TypeVar

T = TypeVar("T")


class ParallelSync:
    """Workers for work that waits for the disk."""

    def __init__(self, workers: Sequence[Executor] = ()) -> None:
        self._workers = workers

    def each(self, act: Callable[[T], object], items: Sequence[T]) -> None:
        """Call `act` for each item; blocks."""
        count = min(len(self._workers), len(items))
        if count <= 1:
            _act_on(act, items)
            return
        shares = [
            worker.submit(_act_on, act, items[number::count])
            for number, worker in enumerate(self._workers[:count])
        ]
        wait(shares)
        for share in shares:
            share.result()

    def dismiss(self) -> None:
        """Shut the workers down after their work."""
        for worker in self._workers:
            worker.shutdown()


def _act_on(act: Callable[[T], object], items: Sequence[T]) -> None:
    for item in items:
        act(item)
