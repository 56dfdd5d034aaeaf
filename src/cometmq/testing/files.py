"""Files that fail on demand: a full disk, a folder without permission."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from cometmq.ports.files import Files, SystemFiles


class FailingFiles:
    """Real files, until told to fail; then nothing on disk changes."""

    def __init__(self, files: Files | None = None) -> None:
        self._files = files or SystemFiles()
        self._read_error: int | None = None
        self._write_error: int | None = None

    def fail_writes(self, number: int = errno.ENOSPC) -> None:
        """Let every write fail with this error number, by default as on a full disk."""
        self._write_error = number

    def fail_reads(self, number: int = errno.EIO) -> None:
        """Let every read fail with this error number."""
        self._read_error = number

    def heal(self) -> None:
        """Work again."""
        self._read_error = self._write_error = None

    def read(self, path: Path) -> bytes | None:
        _raise(self._read_error, path)
        return self._files.read(path)

    def replace(self, path: Path, data: bytes) -> None:
        _raise(self._write_error, path)
        self._files.replace(path, data)


def _raise(number: int | None, path: Path) -> None:
    if number is not None:
        raise OSError(number, os.strerror(number), str(path))
