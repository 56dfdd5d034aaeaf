"""The timer checkpoint (`config/timercheck`): the progress of the timers.

Rules kept here: the values are written together, within one disk sector, and are on the disk when `save`
returns.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import Final

import msgspec

from cometmq.model.errors import StoreError
from cometmq.model.topic import DataVersion
from cometmq.ports.disk import Disk, DiskFile
from cometmq.store.tables.files import make_file

FILE_SIZE: Final = 4096

_PROGRESS: Final = Struct(">7q")
_MOVE_AWAY: Final = "move it away, and timers are read again from the beginning of their queue"


class TimerProgress(msgspec.Struct, frozen=True):
    """The progress of the timers; a slave also asks its master for it."""

    last_read_time_ms: int = 0
    """The moment up to which timers were delivered."""
    last_timer_log_flush_pos: int = 0
    """The flushed position of the timer log."""
    last_timer_queue_offset: int = 0
    """The next offset to read from the queue of the timer topic."""
    master_timer_queue_offset: int = 0
    """That of the master."""
    data_version: DataVersion = DataVersion()

    def pack(self) -> bytes:
        """Encode for the file and for a slave."""
        *numbers, version = msgspec.structs.astuple(self)
        return _PROGRESS.pack(*numbers, *msgspec.structs.astuple(version))

    @classmethod
    def unpack(cls, data: bytes) -> TimerProgress:
        """Decode; the answer of an older master may end before the version."""
        numbers = _PROGRESS.unpack(data.ljust(_PROGRESS.size, b"\0"))
        return cls(*(*numbers[:4], DataVersion(*numbers[4:])))


class TimerCheckpoint:
    """The file."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = self._path = path
        self._file: DiskFile | None = None

    def load(self) -> TimerProgress:
        """Load the progress; a missing file is made."""
        self._file = file = self._open()
        return TimerProgress.unpack(bytes(file.buffer[: _PROGRESS.size]))

    def save(self, progress: TimerProgress) -> None:
        """Write and sync; belongs on a worker thread."""
        file = self._file
        if file is None:
            raise StoreError(f"{self._path} is not open")
        file.buffer[: _PROGRESS.size] = progress.pack()
        file.wrote(0, _PROGRESS.size)
        file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> DiskFile:
        try:
            file = self._disk.open(self._path)
        except FileNotFoundError:
            file = make_file(self._disk, self._path, FILE_SIZE)
        except IsADirectoryError:
            raise StoreError(f"{self._path} is a folder, and has to be a file; {_MOVE_AWAY}") from None
        if file.size == 0:  # left by a crash
            file.close()
            self._disk.remove(self._path)
            file = make_file(self._disk, self._path, FILE_SIZE)
        if file.size < _PROGRESS.size:
            file.close()
            raise StoreError(f"{self._path} has {file.size} bytes, expected {FILE_SIZE}; {_MOVE_AWAY}")
        file.reserve(0, _PROGRESS.size)
        return file
