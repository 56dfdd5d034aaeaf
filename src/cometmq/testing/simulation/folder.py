"""Folders of a simulated disk, and which of their changes survive a crash.

Rules kept here:
- A change of a folder sets the targets of some names, whole or not at all: a rename is one change of two
  names.
- Changes are durable after a sync of their folder. That sync also makes the way to the folder durable, as all
  journaling file systems have it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from cometmq.ports.descriptors import NotOpenedError
from cometmq.testing.simulation.content import Content, CrashMode

Change = dict[str, "Content | Folder | None"]
"""Names and their new targets; None removes the name."""
Survive = Callable[["Content | Folder"], "Content | Folder"]


class Folder:
    """One folder."""

    def __init__(self) -> None:
        self.entries: dict[str, Content | Folder] = {}
        self._durable: dict[str, Content | Folder] = {}
        self._pending: list[Change] = []

    def change(self, change: Change) -> None:
        _apply(self.entries, change)
        self._pending.append(change)

    def sync(self) -> None:
        self._durable = dict(self.entries)
        self._pending.clear()

    def sync_name(self, name: str) -> None:
        """Make one name durable, and leave the others as they are."""
        _apply(self._durable, {name: self.entries.get(name)})
        for change in self._pending:
            change.pop(name, None)

    def survivor(self, mode: CrashMode, chance: Random, survive: Survive) -> Folder:
        """Returns this folder after a crash; `survive` does so for its entries."""
        left = Folder()
        if mode in (CrashMode.KEEP, CrashMode.CUT):
            left.entries = {name: survive(node) for name, node in self.entries.items()}
            left._durable = {name: survive(node) for name, node in self._durable.items()}
            left._pending = [
                {name: node and survive(node) for name, node in change.items()} for change in self._pending
            ]
            return left
        names = dict(self._durable)
        for change in self._surviving(mode, chance):
            _apply(names, change)
        left.entries = {name: survive(node) for name, node in names.items()}
        left.sync()
        return left

    def _surviving(self, mode: CrashMode, chance: Random) -> list[Change]:
        if mode is CrashMode.TORN:
            return self._pending[: chance.randrange(len(self._pending) + 1)]
        if mode is CrashMode.REORDER:
            return [change for change in self._pending if chance.random() < 0.5]
        return []


class Tree:
    """All folders, from the root."""

    def __init__(self, root: Folder | None = None) -> None:
        self.root = root or Folder()

    def find(self, path: Path) -> Content | Folder | None:
        node: Content | Folder | None = self.root
        for name in _names(path):
            if not isinstance(node, Folder):
                return None
            node = node.entries.get(name)
        return node

    def folder(self, path: Path) -> Folder:
        """Returns the folder of this path; raises like the system if there is none."""
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if not isinstance(node, Folder):
            raise os_error(errno.ENOTDIR, path)
        return node

    def file(self, path: Path) -> Content:
        """Returns the content of this path; raises like the system if there is none."""
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(node, Folder):
            raise os_error(errno.EISDIR, path)
        return node

    def make_folder(self, path: Path) -> Folder:
        """Returns the folder of this path, created with its parents if necessary."""
        folder = self.root
        for name in _names(path):
            if name not in folder.entries:
                folder.change({name: Folder()})
            node = folder.entries[name]
            if not isinstance(node, Folder):
                raise os_error(errno.ENOTDIR, path)
            folder = node
        return folder

    def sync_way(self, path: Path) -> None:
        """Make the name of a path and of its parents durable."""
        folder = self.root
        for name in _names(path):
            folder.sync_name(name)
            node = folder.entries.get(name)
            if not isinstance(node, Folder):
                return
            folder = node

    def files(self, folder: Folder, path: Path) -> Iterator[tuple[Path, Content]]:
        """Every file in a folder and below it; their paths begin with `path`."""
        for name, node in folder.entries.items():
            if isinstance(node, Folder):
                yield from self.files(node, path / name)
            else:
                yield path / name, node


def os_error(number: int, path: Path) -> OSError:
    error_type = NotOpenedError if number in (errno.EMFILE, errno.ENFILE) else OSError
    return error_type(number, os.strerror(number), str(path))


def _names(path: Path) -> tuple[str, ...]:
    return path.parts[1:] if path.is_absolute() else path.parts


def _apply(names: dict[str, Content | Folder], change: Change) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node
