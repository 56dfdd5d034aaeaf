"""Limiting the number of mapped consume queue files.

A process may have some 65,000 mappings (`vm.max_map_count`), and a store can have more queues than that.

Rules kept here:
- A file is mapped when it is needed. When too many are, one that was not used for a while is unmapped, synced
  or not: a sync finds it by its path.
- Only the writing thread unmaps. Another thread may map a file to read it, and reads nothing if it is
  unmapped meanwhile; the next file that the writing thread maps restores the limit.
- Appends to and reads of mapped files do not pass through here.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock, get_ident
from typing import Final, Protocol

from cometmq.store.log.mapped_files import MappedFile

_USUAL_MAX_MAP_COUNT: Final = 65_530
_MAX_MAP_COUNT: Final = Path("/proc/sys/vm/max_map_count")
_SECOND_CHANCES: Final = 64
"""How many used files are passed over, at most, in search of an unused one."""


class Owner(Protocol):
    """The sequence of files that a file belongs to."""

    def unmapped(self, mapped: MappedFile) -> None:
        """A file was unmapped."""


def most_files() -> int:
    """How many files may be mapped on this machine; a file with a hole takes two mappings."""
    try:
        mappings = int(_MAX_MAP_COUNT.read_text())
    except (OSError, ValueError):
        mappings = _USUAL_MAX_MAP_COUNT
    return max(mappings // 3, 256)


class OpenFiles:
    """The mapped files of all queues of a store, oldest mapping first."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit or most_files()
        self._files: dict[MappedFile, tuple[Owner, int]] = {}
        """The owner of each file, and how much was written at the last check."""
        self._changing = Lock()
        self._thread = get_ident()

    def own(self) -> None:
        """Make the calling thread the writing thread."""
        self._thread = get_ident()

    def __len__(self) -> int:
        return len(self._files)

    def add(self, owner: Owner, mapped: MappedFile) -> None:
        """A file was mapped."""
        with self._changing:
            self._files[mapped] = owner, mapped.wrote
            if self._thread != get_ident():
                return
            while len(self._files) > max(self.limit, 1):
                self._unmap_one(mapped)

    def forget(self, mapped: MappedFile) -> None:
        """A file is no longer part of a queue."""
        with self._changing:
            self._files.pop(mapped, None)

    def _unmap_one(self, needed: MappedFile) -> None:
        """Unmap a file that was not used since its last check, or else the next one."""
        chances = _SECOND_CHANCES
        while True:
            mapped = next(iter(self._files))
            owner, wrote = self._files.pop(mapped)
            is_used = mapped.was_read or mapped.wrote != wrote
            if mapped is not needed and not (is_used and chances):
                mapped.unmap()
                owner.unmapped(mapped)
                return
            if mapped is not needed:
                chances -= 1
                mapped.was_read = False
            self._files[mapped] = owner, mapped.wrote
