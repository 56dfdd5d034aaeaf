"""The checkpoint: the store times up to which log, queues and index are on the disk.

Rules kept here:
- A file of 4096 bytes, of which the first 40 are used: five numbers of 64 bits.
- The numbers count once `sync` returned. They may be too old, which makes recovery longer, but never too new,
  which would make it miss records. So they are set after the sync that they report.
- Recovery goes back three seconds more than the checkpoint says, as Apache's does.
"""

from __future__ import annotations

import logging
import struct
from pathlib import Path
from typing import Final

from cometmq.ports.disk import Disk, DiskFile
from cometmq.store.tables.files import make_file, move_away

log = logging.getLogger("cometmq.store")

CHECKPOINT_FIELDS: Final = struct.Struct(">qqqqq")
CHECKPOINT_SIZE: Final = 4096
_MARGIN_MS: Final = 3000


class Checkpoint:
    """The store's checkpoint."""

    def __init__(self, disk: Disk, path: Path) -> None:
        """Open the file, or make it; blocks."""
        self._file = _open(disk, path)
        fields = CHECKPOINT_FIELDS.unpack_from(self._file.buffer)
        self.physic_msg_timestamp: int = fields[0]
        """The store time of the last message whose record is on the disk."""
        self.logics_msg_timestamp: int = fields[1]
        """The store time of the last message whose queue unit is on the disk."""
        self.index_msg_timestamp: int = fields[2]
        """The store time of the last message in an index file that is full and on the disk."""
        self.master_flushed_offset: int = fields[3]
        """The flushed offset of the master's commit log."""
        self.confirm_phy_offset: int = fields[4]
        """The offset that the replicas have confirmed."""

    @property
    def min_timestamp(self) -> int:
        """A store time up to which records and queue units are on the disk."""
        return max(min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _MARGIN_MS, 0)

    def sync(self) -> None:
        """Write and sync the numbers; blocks."""
        CHECKPOINT_FIELDS.pack_into(
            self._file.buffer,
            0,
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_phy_offset,
        )
        self._file.wrote(0, CHECKPOINT_FIELDS.size)
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def _open(disk: Disk, path: Path) -> DiskFile:
    found = next((entry for entry in disk.entries(path.parent) if entry.name == path.name), None)
    if found is None or (found.size == 0 and not found.is_folder):
        disk.remove(path)  # an empty file is left by a crash
        file = make_file(disk, path, CHECKPOINT_SIZE)
    elif found.is_folder or found.size < CHECKPOINT_SIZE:
        log.warning("%s cannot be read, and is made again; the whole log is recovered", path)
        move_away(disk, path)
        file = make_file(disk, path, CHECKPOINT_SIZE)
    else:
        file = disk.open(path)
    file.reserve(0, CHECKPOINT_SIZE)
    return file
