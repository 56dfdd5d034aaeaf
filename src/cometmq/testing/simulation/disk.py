"""A simulated disk in memory that crashes, fills up and fails on demand, and reproducibly.

Rules kept here:
- A run that is stopped at a point raises `SimulatedCrash`; `crash` then returns the disk for the next start,
  in one of several modes.
- Only ranges reported by `wrote` are written, and only where room was reserved; with `check_writes`, bytes
  that changed without a report are found at the next point of their file.
- Pessimism is the default: names need a sync of their folder, sizes a sync of their file.
- Small files are replaced in the steps in which the real disk does it, with points between them.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Final

from cometmq.ports.clock import Clock
from cometmq.ports.disk import DiskUsage, Entry
from cometmq.testing.clock import VirtualClock
from cometmq.testing.simulation.content import PAGE_SIZE, Content, CrashMode
from cometmq.testing.simulation.folder import Folder, Tree, os_error
from cometmq.testing.simulation.machine import (
    UNLIMITED,
    Failure,
    Machine,
    Operation,
    Rules,
    SimulatedCrash,
    SimulatedFile,
)

__all__ = ["CrashMode", "Rules", "SimulatedCrash", "SimulatedDisk", "SimulatedFile", "crashes"]

ROOT: Final = Path("/")
USUAL_MODES: Final = (CrashMode.DROP, CrashMode.KEEP, CrashMode.TORN, CrashMode.REORDER)


class SimulatedDisk:
    """A whole disk."""

    def __init__(
        self,
        seed: int = 0,
        *,
        stop_at: int | None = None,
        rules: Rules | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.seed = seed
        self._machine = Machine(rules or Rules(), clock or VirtualClock(), stop_at)
        self._tree = self._machine.tree
        self._locks: set[Path] = set()

    @property
    def points(self) -> int:
        """The number of passed points."""
        return self._machine.points

    @property
    def last_point(self) -> str:
        """The last point, for messages of failed tests."""
        return self._machine.last_point

    def stop_at(self, point: int | None) -> None:
        """Stop at this point, counted from the beginning."""
        self._machine.stop_at = point

    def on_point(self, act: Callable[[str], None] | None) -> None:
        """Do something at each point, for example write while a sync is under way."""
        self._machine.on_point = act

    def read(self, path: Path) -> bytes | None:
        with self._machine.guard:
            self._machine.enter("read", path)
            return None if self._tree.find(path) is None else self._tree.file(path).read()

    def replace(self, path: Path, data: bytes) -> None:
        with self._machine.guard:
            self._machine.enter("replace", path)
            self._tree.make_folder(path.parent)
            previous = self.read(path)
            if previous is not None:
                self._write_and_rename(path.with_name(path.name + ".bak"), previous)
            self._write_and_rename(path, data)
            self.sync_folder(path.parent)

    def _write_and_rename(self, path: Path, data: bytes) -> None:
        machine, draft = self._machine, path.with_name(path.name + ".tmp")
        try:
            content = self._put(draft, Content(len(data), machine.clock.now_ms()))
            machine.point("create", draft)
            machine.take_room(draft, content, 0, len(data))
            content.write(0, data)
            machine.point("wrote", draft, written=content)
            machine.sync(draft, content)
            self._tree.folder(path.parent).change({draft.name: None, path.name: content})
            machine.point("rename", path)
        except OSError:
            with contextlib.suppress(OSError):
                self.remove(draft)
            raise

    def entries(self, folder: Path) -> list[Entry]:
        with self._machine.guard:
            self._machine.enter("read", folder)
            if self._tree.find(folder) is None:
                return []
            nodes = sorted(self._tree.folder(folder).entries.items(), key=lambda item: item[0])
            return [_entry(name, node) for name, node in nodes]

    def create(self, path: Path, size: int, *, scattered: bool = False) -> SimulatedFile:
        with self._machine.guard:
            self._machine.enter("create", path)
            if self._tree.find(path) is not None:
                raise os_error(errno.EEXIST, path)
            if self._machine.room_left() < PAGE_SIZE:
                raise os_error(errno.ENOSPC, path)
            content = self._put(path, Content(size, self._machine.clock.now_ms()))
            self._machine.point("create", path)
            return SimulatedFile(self._machine, path, content, writable=True)

    def open(self, path: Path, *, writable: bool = True, scattered: bool = False) -> SimulatedFile:
        with self._machine.guard:
            self._machine.enter("open", path)
            return SimulatedFile(self._machine, path, self._tree.file(path), writable=writable)

    def remove(self, path: Path) -> None:
        with self._machine.guard:
            self._machine.enter("remove", path)
            node = self._tree.find(path)
            if node is None:
                return
            if isinstance(node, Folder) and node.entries:
                raise os_error(errno.ENOTEMPTY, path)
            if isinstance(node, Content) and node.handles:
                self._machine.unlinked.add(node)
            self._tree.folder(path.parent).change({path.name: None})
            self._machine.point("remove", path)

    def rename(self, path: Path, name: str) -> None:
        with self._machine.guard:
            self._machine.enter("replace", path)
            node = self._tree.find(path)
            if node is None:
                raise os_error(errno.ENOENT, path)
            self._tree.folder(path.parent).change({path.name: None, name: node})
            self._machine.point("rename", path.with_name(name))

    def sync_folder(self, folder: Path) -> None:
        machine = self._machine
        with machine.guard:
            machine.enter("sync_folder", folder)
            names = self._tree.folder(folder)
            machine.point("sync_folder begins", folder)
            names.sync()
            self._tree.sync_way(folder)
            if not machine.rules.sizes_need_file_sync:
                for node in names.entries.values():
                    if isinstance(node, Content):
                        node.named()
            machine.point("sync_folder ends", folder)

    def usage(self, path: Path) -> DiskUsage | None:
        with self._machine.guard:
            if self._tree.find(path) is None:
                return None
            total, used = self._machine.rules.capacity or UNLIMITED, self._machine.used()
            return DiskUsage(total, used, max(total - used, 0))

    def lock(self, path: Path) -> SimulatedLock | None:
        with self._machine.guard:
            self._machine.enter("create", path)
            if path in self._locks:
                return None
            if self._tree.find(path) is None:
                self._put(path, Content.stored(b"lock", self._machine.clock.now_ms()))
                self._machine.point("create", path)
            self._locks.add(path)
            return SimulatedLock(self._locks, path)

    def fail(
        self,
        operation: Operation,
        path: Path | None = None,
        number: int = errno.EIO,
        *,
        times: int | None = None,
    ) -> None:
        """Let an operation fail, on one path or on all, `times` times or until `heal`."""
        self._machine.failures.append(Failure(operation, path, number, times))

    def heal(self) -> None:
        """Work again."""
        self._machine.failures.clear()

    def crash(self, mode: CrashMode, seed: int | None = None) -> SimulatedDisk:
        """Returns the disk after a crash at this moment; this one stays unchanged, for other modes."""
        machine = self._machine
        with machine.guard:
            for path, content in self._tree.files(self._tree.root, ROOT):
                machine.check(path, content)
            chance = Random(f"{self.seed if seed is None else seed}-{machine.points}-{mode}")
            after = SimulatedDisk(chance.randrange(1 << 32), rules=machine.rules, clock=machine.clock)

            survivors: dict[Content | Folder, Content | Folder] = {}

            def survive(node: Content | Folder) -> Content | Folder:
                if node not in survivors:
                    survivors[node] = (
                        node.survivor(mode, chance, survive)
                        if isinstance(node, Folder)
                        else node.survivor(mode, chance, is_last_written=node is machine.last_written)
                    )
                return survivors[node]

            after._tree = after._machine.tree = Tree(self._tree.root.survivor(mode, chance, survive))
            return after

    def load_from(self, folder: Path, into: Path = ROOT) -> None:
        """Copy a folder of the machine to this disk, as durable content; zeros become holes."""
        self._tree.make_folder(into)
        for found in sorted(folder.rglob("*")):
            path = into / found.relative_to(folder)
            if found.is_dir():
                self._tree.make_folder(path)
            else:
                self._put(path, Content.stored(found.read_bytes(), found.stat().st_mtime_ns // 1_000_000))
            self._tree.sync_way(path)

    def dump_to(self, folder: Path, of: Path = ROOT) -> None:
        """Copy this disk, as programs see it, to a folder of the machine, with its holes."""
        for path, content in self._tree.files(self._tree.folder(of), folder):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.truncate(content.size)
                for index, page in content.pages().items():
                    file.seek(index * PAGE_SIZE)
                    file.write(page[: content.size - index * PAGE_SIZE])

    def _put(self, path: Path, content: Content) -> Content:
        self._tree.make_folder(path.parent).change({path.name: content})
        return content


class SimulatedLock:
    """A lock that is held."""

    def __init__(self, held: set[Path], path: Path) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


def crashes(
    workload: Callable[[SimulatedDisk], None],
    make_disk: Callable[[int | None], SimulatedDisk],
    modes: Iterable[CrashMode] = USUAL_MODES,
    *,
    step: int = 1,
) -> Iterator[tuple[SimulatedDisk, CrashMode, SimulatedDisk]]:
    """Run a workload once for each point, stop it there, and yield the disk before and after the crash.

    `make_disk` makes the disk of a run; it gets the point to stop at, or None. A workload may clean up after
    itself: the stopped machine raises again, and nothing reaches the disk.
    """
    modes = tuple(modes)
    complete = make_disk(None)
    workload(complete)
    for point in range(1, complete.points + 1, step):
        disk = make_disk(point)
        with contextlib.suppress(SimulatedCrash):
            workload(disk)
        for mode in modes:
            yield disk, mode, disk.crash(mode)


def _entry(name: str, node: Content | Folder) -> Entry:
    if isinstance(node, Folder):
        return Entry(name, PAGE_SIZE, True, 0)
    return Entry(name, node.size, False, node.modified_ms)
