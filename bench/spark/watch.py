"""Cost of a Spark query: core seconds of all processes, and the memory of Python workers.

Rules kept here:
- Servers and workers are children of this process, and idle ones use next to nothing. So the core seconds of
  all processes during a query are those of the query.
- Memory is sampled while queries run; the largest sample of any worker counts.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

import psutil

_LOOK_S: Final = 0.1


def core_seconds() -> float:
    """What the descendants of this process have used so far, those that ended included."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def is_worker(command: Sequence[str]) -> bool:
    """Whether a command line is that of a Python process that Spark started; Java's has its folder, too."""
    return len(command) > 2 and command[1] == "-m" and command[2].startswith("pyspark.")


class WorkerMemory:
    """Watches Spark's Python workers until the context ends."""

    def __init__(self) -> None:
        self.most_mb = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="worker-memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            for process in psutil.Process().children(recursive=True):
                try:
                    if is_worker(process.cmdline()):
                        self.most_mb = max(self.most_mb, process.memory_info().rss / 1e6)
                except psutil.Error:
                    continue  # it ended while it was looked at
