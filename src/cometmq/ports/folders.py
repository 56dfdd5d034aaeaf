"""Whole folders: given another name at once, and removed with all that is in them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Protocol


class Folders(Protocol):
    """What is done to folders as a whole; all of it blocks."""

    def move(self, source: Path, target: Path) -> None:
        """Give a folder another name in the same file system; nothing of that name may be there."""

    def remove_tree(self, folder: Path) -> None:
        """Remove a folder and everything in it; one that is not there is no error."""


class SystemFolders:
    """Those of the machine."""

    def move(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def remove_tree(self, folder: Path) -> None:
        if folder.exists():
            shutil.rmtree(folder)
