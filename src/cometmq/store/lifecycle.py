"""Who has a store directory, and whether its last user left it in order.

Rules kept here:
- A directory has one user at a time, of whatever make: the lock is the one that Apache's broker takes.
- `abort` is on the disk before anything else is changed, and stays until everything is on the disk that was
  changed. Where it is found at a start, the last stop was not an orderly one.
- Everything here blocks.
"""

from __future__ import annotations

import os
from pathlib import Path

from cometmq.model.errors import StoreError
from cometmq.ports.disk import Disk, DiskLock


class StoreDirectory:
    """The root of a store, from `enter` to `leave`."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._root = root
        self._abort = root / "abort"
        self._lock: DiskLock | None = None

    def enter(self) -> bool:
        """Take the directory; the answer is whether the last stop was an orderly one."""
        lock_path = self._root / "lock"
        self._lock = self._disk.lock(lock_path)
        if self._lock is None:
            raise StoreError(
                f"{lock_path} is held by another process: this store is in use; stop that process first, "
                "or choose another storePathRootDir"
            )
        try:
            stopped_orderly = self._disk.read(self._abort) is None
            self._disk.replace(self._abort, str(os.getpid()).encode("ascii"))
            self._disk.sync_folder(self._root.parent)  # the directory itself may be new
        except BaseException:
            self._release()
            raise
        return stopped_orderly

    def leave(self, *, in_order: bool) -> None:
        """Give the directory back; `in_order` if all that was changed is on the disk."""
        try:
            if in_order:
                self._disk.remove(self._abort)
                self._disk.sync_folder(self._root)
        finally:
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
