"""The timer wheel: for each moment of the next days, the positions of its timers in the timer log.

Rules kept here:
- The file has a slot for each moment of two rounds; a slot with another moment than the wanted one is empty.
- Changes are made in memory and written together, after the timer log was synced: a slot on the disk never
  points at a record that a crash can take. So the writing thread calls `take_changes`, then a worker thread
  syncs the log and calls `write_back`.
- Memory and writes are used in blocks of 128 slots: an idle wheel costs next to nothing.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from cometmq.model.errors import StoreError
from cometmq.ports.disk import Disk, DiskFile
from cometmq.store.tables.files import make_file, move_away

log = logging.getLogger("cometmq.store")

SLOTS_PER_ROUND: Final = 7 * 24 * 3600
SLOT_SIZE: Final = 32
PRECISION_MS: Final = 1000

_SLOT: Final = Struct(">qqqii")
_BLOCK_SLOTS: Final = 128
_BLOCK_SIZE: Final = _BLOCK_SLOTS * SLOT_SIZE
_RESERVE_STEP: Final = 16 * _BLOCK_SIZE
_ZEROS: Final = bytes(_BLOCK_SIZE)

Changes = list[tuple[int, bytes]]
"""Positions of changed blocks in the file, and their content."""


class Slot(NamedTuple):
    """The timers of one moment."""

    first: int
    """The position of the oldest one in the timer log."""
    last: int
    """The position of the newest one, which leads to the others."""
    num: int
    """The number of timers; one that cancels another counts -1."""
    magic: int = 0


class TimerWheel:
    """All slots."""

    def __init__(
        self,
        disk: Disk,
        path: Path,
        precision_ms: int = PRECISION_MS,
        slots_per_round: int = SLOTS_PER_ROUND,
    ) -> None:
        self._disk = disk
        self._path = path
        self._slots = 2 * slots_per_round
        self._size = self._slots * SLOT_SIZE
        self._memory = mmap.mmap(-1, self._size)  # pages are allocated on first write
        self._used: set[int] = set()
        self._changed: set[int] = set()
        self._taken: set[int] = set()
        self._reserved: set[int] = set()
        self._file: DiskFile | None = None
        self.precision_ms = precision_ms

    def load(self) -> bool:
        """Read the file, or make it; returns whether it was made."""
        self._file = self._open()
        if self._file is None:
            self._file = make_file(self._disk, self._path, self._size)
            return True
        for start in range(0, self._size, _BLOCK_SIZE):
            block = self._file.buffer[start : start + _BLOCK_SIZE]
            if block != _ZEROS[: len(block)]:
                self._memory[start : start + len(block)] = bytes(block)
                self._used.add(start // _BLOCK_SIZE)
        return False

    def _open(self) -> DiskFile | None:
        try:
            file = self._disk.open(self._path)
        except FileNotFoundError:
            return None
        except IsADirectoryError:
            log.warning("%s is a folder, and is made again from the timer log", self._path)
            move_away(self._disk, self._path)
            return None
        if file.size == self._size:
            return file
        file.close()
        if file.size == 0:  # left by a crash
            self._disk.remove(self._path)
            return None
        log.warning(
            "%s has %d bytes, expected %d, and is made again from the timer log",
            *(self._path, file.size, self._size),
        )
        move_away(self._disk, self._path)
        return None

    def get(self, time_ms: int) -> Slot | None:
        """The timers of a moment."""
        time = time_ms // self.precision_ms
        found, first, last, num, magic = _SLOT.unpack_from(self._memory, time % self._slots * SLOT_SIZE)
        return Slot(first, last, num, magic) if found == time else None

    def last(self, time_ms: int) -> int:
        """The position of the newest timer of a moment; -1 without one."""
        time = time_ms // self.precision_ms
        found, _, last, _, _ = _SLOT.unpack_from(self._memory, time % self._slots * SLOT_SIZE)
        return int(last) if found == time else -1

    def put(self, time_ms: int, first: int, last: int, num: int, magic: int = 0) -> None:
        """Set the timers of a moment, in place of any other moment in the slot."""
        time = time_ms // self.precision_ms
        index = time % self._slots
        _SLOT.pack_into(self._memory, index * SLOT_SIZE, time, first, last, num, magic)
        self._changed.add(index // _BLOCK_SLOTS)

    def add(self, time_ms: int, position: int, counts: int = 1) -> None:
        """Add a record to a moment; one that cancels a timer counts -1."""
        time = time_ms // self.precision_ms
        index = time % self._slots
        at = index * SLOT_SIZE
        found, first, _, num, magic = _SLOT.unpack_from(self._memory, at)
        if found != time or first < 0:
            first = position
            num = magic = 0
        _SLOT.pack_into(self._memory, at, time, first, position, num + counts, magic)
        self._changed.add(index // _BLOCK_SLOTS)

    def revise(self, time_ms: int, position: int, counts: int = 1) -> None:
        """Add a record of the log if its slot does not know it, and is not in use for a later moment."""
        time = time_ms // self.precision_ms
        at = time % self._slots * SLOT_SIZE
        found, first, last, num, magic = _SLOT.unpack_from(self._memory, at)
        if found < time:
            self.put(time_ms, position, position, counts)
        elif found == time and last < position:
            self.put(time_ms, first if first >= 0 else position, position, num + counts, magic)

    def cut(self, end: int) -> int | None:
        """Empty all slots that point after the end of the log.

        Returns the position of their first timer, from which on `revise` is needed; None without such a slot.
        """
        lost: list[tuple[int, int]] = [
            (time, first) for time, first, last, _, _ in self._slots_in_use() if last >= end
        ]
        for time, _ in lost:
            self.put(time * self.precision_ms, -1, -1, 0)
        return min((first for _, first in lost), default=None)

    def count(self, from_ms: int, to_ms: int | None = None) -> int:
        """The number of timers from one moment up to another."""
        first = from_ms // self.precision_ms
        last = first + self._slots if to_ms is None else -(-to_ms // self.precision_ms)
        return sum(num for time, _, _, num, _ in self._slots_in_use() if first <= time < last)

    def latest(self) -> int:
        """The last moment that timers are, or were, set for; -1 without one."""
        times = (time for time, first, _, _, _ in self._slots_in_use() if first >= 0)
        return max((time * self.precision_ms for time in times), default=-1)

    def lies_within(self, from_ms: int, to_ms: int) -> bool:
        """Whether all moments that timers are, or were, set for lie in a time range."""
        first, last = from_ms // self.precision_ms, to_ms // self.precision_ms
        return all(first <= time <= last for time, *_ in self._slots_in_use())

    def clear(self) -> None:
        """Empty all slots."""
        for block in self._used | self._changed:
            start = block * _BLOCK_SIZE
            end = min(start + _BLOCK_SIZE, self._size)
            self._memory[start:end] = _ZEROS[: end - start]
        self._changed |= self._used

    def _slots_in_use(self) -> Iterator[tuple[int, int, int, int, int]]:
        for block in sorted(self._used | self._changed):
            start = block * _BLOCK_SIZE
            for slot in _SLOT.iter_unpack(self._memory[start : min(start + _BLOCK_SIZE, self._size)]):
                if slot[0]:
                    yield slot

    def take_changes(self) -> Changes:
        """The blocks that changed since the last call, or could not be written since."""
        blocks = self._taken | self._changed
        self._used |= self._changed
        self._taken, self._changed = blocks, set()
        starts = [block * _BLOCK_SIZE for block in sorted(blocks)]
        return [(start, self._memory[start : min(start + _BLOCK_SIZE, self._size)]) for start in starts]

    def write_back(self, changes: Changes) -> None:
        """Write and sync changes; if that fails, the next changes include them."""
        file = self._file
        if file is None:
            raise StoreError(f"{self._path} is not open")
        for start, block in changes:
            step = start // _RESERVE_STEP
            if step not in self._reserved:
                file.reserve(step * _RESERVE_STEP, min((step + 1) * _RESERVE_STEP, self._size))
                self._reserved.add(step)
            file.buffer[start : start + len(block)] = block
            file.wrote(start, start + len(block))
        if changes:
            file.sync()
        self._taken = set()

    def close(self) -> None:
        """Close the file; changes that were not written back are lost."""
        if self._file is not None:
            self._file.close()
            self._file = None
