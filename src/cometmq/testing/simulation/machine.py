"""The machine of a simulated disk: points at which it may stop, failures, and room.

Rules kept here:
- Every operation that a crash can come after is a point, and points are counted. At the point of `stop_at`
  the machine stops: `SimulatedCrash` is raised there, and by everything that comes later.
- Syncs may run on other threads than writes; writes before the begin of a sync are durable at its end.
- A sync that fails loses its writes, also for later syncs, as on Linux.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Final, Literal

import msgspec

from cometmq.ports.clock import Clock
from cometmq.ports.descriptors import NotOpenedError
from cometmq.ports.disk import Readable
from cometmq.testing.simulation.content import PAGE_SIZE, Content
from cometmq.testing.simulation.folder import Tree, os_error

Operation = Literal["create", "open", "read", "remove", "replace", "reserve", "sync", "sync_folder"]
"""Operations that can fail; listing a folder counts as reading it."""

UNLIMITED: Final = 1 << 50


class SimulatedCrash(BaseException):
    """The machine stopped here; nothing that runs on it may handle this."""


class Rules(msgspec.Struct, frozen=True):
    """The guarantees of a simulated disk."""

    capacity: int | None = None
    check_writes: bool = True
    names_need_folder_sync: bool = True
    """Otherwise the sync of a file makes its name durable too."""
    sizes_need_file_sync: bool = True
    """Otherwise the sync of a folder makes the sizes of its files durable too."""


class Failure(msgspec.Struct):
    """An operation that fails, on one path or on all, a number of times or always."""

    operation: Operation
    path: Path | None
    number: int
    times: int | None


class Machine:
    """The shared state of disk and files."""

    def __init__(self, rules: Rules, clock: Clock, stop_at: int | None) -> None:
        self.rules = rules
        self.clock = clock
        self.stop_at = stop_at
        self.points = 0
        self.last_point = ""
        self.stopped = False
        self.tree = Tree()
        self.guard = RLock()
        self.failures: list[Failure] = []
        self.unlinked: set[Content] = set()
        """Open files without a name: they take room."""
        self.last_written: Content | None = None
        """The content of the last point, if that was a write."""
        self.on_point: Callable[[str], None] | None = None

    def enter(self, operation: Operation, path: Path) -> None:
        """Begin an operation, or fail as a test wants it."""
        self.must_run()
        for failure in self.failures:
            if failure.operation == operation and failure.path in (None, path) and failure.times != 0:
                if failure.times is not None:
                    failure.times -= 1
                raise os_error(failure.number, path)

    def must_run(self) -> None:
        if self.stopped:
            raise SimulatedCrash(f"the machine stopped at point {self.points}: {self.last_point}")

    def point(self, what: str, path: Path, *, written: Content | None = None) -> None:
        """An operation is done, and the machine may stop here."""
        self.points += 1
        self.last_point = f"{what} {path}"
        self.last_written = written
        if self.points == self.stop_at:
            self.stopped = True
            self.must_run()
        if self.on_point is not None:
            self.on_point(self.last_point)

    def check(self, path: Path, content: Content) -> None:
        """Find unreported changes."""
        position = content.unreported() if self.rules.check_writes and not self.stopped else None
        if position is not None:
            raise AssertionError(f"{path} was changed at {position}, and no write was reported there")

    def take_room(self, path: Path, content: Content, start: int, end: int) -> None:
        if content.missing_room(start, end) > self.room_left():
            raise os_error(errno.ENOSPC, path)
        content.reserve(start, end)

    def room_left(self) -> int:
        capacity = self.rules.capacity
        return UNLIMITED if capacity is None else capacity - self.used()

    def used(self) -> int:
        """Returns the reserved room in bytes."""
        named = (content for _, content in self.tree.files(self.tree.root, Path("/")))
        return sum(content.reserved.bit_count() * PAGE_SIZE for content in {*named, *self.unlinked})

    def sync(self, path: Path, content: Content) -> None:
        with self.guard:
            self.must_run()
            self.check(path, content)
            writes = content.written
            self.point("sync begins", path)
        with self.guard:
            try:
                self.enter("sync", path)
            except NotOpenedError:
                raise
            except OSError:
                content.forget(writes)
                raise
            content.synced(writes)
            if not self.rules.names_need_folder_sync:
                self.tree.sync_way(path)
            self.point("sync ends", path)


class SimulatedFile:
    """A file that is open."""

    def __init__(self, machine: Machine, path: Path, content: Content, *, writable: bool) -> None:
        self._machine = machine
        self._content = content
        self._writable = writable
        self._is_open = True
        self.path = path
        self.size = content.size
        self.buffer = content.map()
        content.handles += 1

    def reserve(self, start: int, end: int) -> None:
        machine = self._machine
        with machine.guard:
            machine.enter("reserve", self.path)
            self._must_be_there()
            machine.take_room(self.path, self._content, start, end)
            machine.point("reserve", self.path)

    def fetch(self, start: int, end: int) -> None:
        """It is in memory already."""

    def is_in_memory(self, start: int, end: int) -> bool:
        return True

    def expect(self, *, scattered: bool) -> None:
        """Nothing is read ahead here."""

    def data_ranges(self, start: int) -> list[tuple[int, int]]:
        """As on a file system that cannot tell."""
        return [(start, self.size)] if start < self.size else []

    def wrote(self, start: int, end: int) -> None:
        machine, path, content = self._machine, self.path, self._content
        with machine.guard:
            machine.must_run()
            if not self._writable or not self._is_open:
                raise AssertionError(f"{path} was written, and is not open for that")
            if not 0 <= start <= end <= content.size:
                raise AssertionError(f"{path}: {start} to {end} lies outside of its {content.size} bytes")
            hole = content.unreserved(start, end)
            if hole is not None:
                raise AssertionError(f"SIGBUS: {path} was written at {hole}, where no room was reserved")
            content.write(start, bytes(self.buffer[start:end]))
            content.modified_ms = machine.clock.now_ms()
            machine.check(path, content)
            machine.point("wrote", path, written=content)

    def write_through(self, start: int, data: Readable) -> None:
        self.buffer[start : start + len(data)] = data
        self.wrote(start, start + len(data))

    def sync(self) -> None:
        self._must_be_there()
        self._machine.sync(self.path, self._content)

    def close(self) -> None:
        machine, content = self._machine, self._content
        with machine.guard:
            if not self._is_open:
                return
            self._is_open = False
            content.handles -= 1
            if content.handles == 0:
                machine.unlinked.discard(content)
                try:
                    machine.check(self.path, content)
                finally:
                    content.unmap()

    def _must_be_there(self) -> None:
        """Raise as a real file does, which is found again by its path."""
        with self._machine.guard:
            self._machine.must_run()
            if self._machine.tree.find(self.path) is not self._content:
                raise os_error(errno.ENOENT, self.path)
