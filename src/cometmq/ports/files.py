"""Small files that are read and replaced whole: configuration and tables.

Rules kept here: a file is replaced by renaming a complete, synced copy, so that a reader or a crash at any
instant finds the old text or the new one; the previous text stays beside it as `<name>.bak`, as RocketMQ
keeps it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Protocol

from cometmq.ports import system
from cometmq.ports.descriptors import opened, with_spare


class Files(Protocol):
    """Reads and replaces whole files."""

    def read(self, path: Path) -> bytes | None:
        """The content, or None if there is no such file."""

    def replace(self, path: Path, data: bytes) -> None:
        """Put new content in place, keeping the previous one as a back-up."""


class SystemFiles:
    """The machine's file system."""

    def read(self, path: Path) -> bytes | None:
        try:
            return with_spare(path.read_bytes)
        except FileNotFoundError:
            return None

    def replace(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        previous = self.read(path)
        if previous is not None:
            _write_and_rename(path.with_name(path.name + ".bak"), previous)
        _write_and_rename(path, data)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Return when the names in a folder are on the disk. Windows cannot be asked for that."""
    if not system.IS_WINDOWS:
        with opened(folder, os.O_RDONLY) as handle:
            system.sync(handle)


def _write_and_rename(path: Path, data: bytes) -> None:
    draft = path.with_name(path.name + ".tmp")
    try:
        with with_spare(lambda: draft.open("wb")) as file:
            file.write(data)
            file.flush()
            system.sync(file.fileno())
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):  # half a draft is of no use, and the disk may be full
            draft.unlink()
        raise
