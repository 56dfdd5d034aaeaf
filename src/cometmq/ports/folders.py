"""Moving and removing whole folders."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Protocol


class Folders(Protocol):
    """Operations on whole folders; all of them block."""

    def move(self, source: Path, target: Path) -> None:
        """Rename a folder within its file system; the target must not exist."""

    def remove_tree(self, folder: Path) -> None:
        """Remove a folder and everything in it; a missing one is no error."""


class SystemFolders:
    def move(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def remove_tree(self, folder: Path) -> None:
        if folder.exists():
            shutil.rmtree(folder)
