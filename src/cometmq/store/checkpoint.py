"""The checkpoint: up to which moment log, queues and index are known to be on the disk.

Rules kept here:
- A file of 4096 bytes, of which the first 40 are used: five numbers of 64 bits.
- The numbers only count once `sync` returned. They may be too old, which makes a recovery longer; they must
  never be too new, which would make it miss records. So they are set after the sync that they tell of.
- A recovery goes back three seconds more than the checkpoint says, as the peers do.
"""

from __future__ import annotations

import logging
import struct
from pathlib import Path
from typing import Final

from cometmq.ports.disk import Disk, DiskFile
from cometmq.store.tables.files import move_away

log = logging.getLogger("cometmq.store")

_FIELDS: Final = struct.Struct(">qqqqq")
_FILE_SIZE: Final = 4096
_MARGIN_MS: Final = 3000


class Checkpoint:
    """The store's checkpoint."""

    def __init__(self, disk: Disk, path: Path) -> None:
        """Open the file, or make it; blocks."""
        self._file = _open(disk, path)
        fields = _FIELDS.unpack_from(self._file.buffer)
        self.physic_msg_timestamp: int = fields[0]
        """The store time of the last message whose record is on the disk."""
        self.logics_msg_timestamp: int = fields[1]
        """The store time of the last message whose queue unit is on the disk."""
        self.index_msg_timestamp: int = fields[2]
        """The store time of the last message in an index file that is full and on the disk."""
        self.master_flushed_offset: int = fields[3]
        """Up to where the master's commit log was on its disk."""
        self.confirm_phy_offset: int = fields[4]
        """Up to where the commit log is confirmed by the replicas."""

    @property
    def min_timestamp(self) -> int:
        """A moment before which records and queue units are on the disk."""
        return max(min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _MARGIN_MS, 0)

    @property
    def min_timestamp_index(self) -> int:
        """The same, with the index."""
        return min(self.min_timestamp, self.index_msg_timestamp)

    def sync(self) -> None:
        """Put the numbers, as they are now, on the disk; blocks."""
        _FIELDS.pack_into(
            self._file.buffer,
            0,
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_phy_offset,
        )
        self._file.wrote(0, _FIELDS.size)
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def _open(disk: Disk, path: Path) -> DiskFile:
    found = next((entry for entry in disk.entries(path.parent) if entry.name == path.name), None)
    if found is None or (found.size == 0 and not found.is_folder):
        disk.remove(path)  # an empty file is what a crash may leave
        file = _make(disk, path)
    elif found.is_folder or found.size < _FILE_SIZE:
        log.warning("%s cannot be read, and is made again; the whole log is recovered", path)
        move_away(disk, path)
        file = _make(disk, path)
    else:
        file = disk.open(path)
    file.reserve(0, _FILE_SIZE)
    return file


def _make(disk: Disk, path: Path) -> DiskFile:
    file = disk.create(path, _FILE_SIZE)
    file.sync()
    disk.sync_folder(path.parent)
    return file
