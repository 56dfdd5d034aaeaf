"""A sequence whose files are spread over several folders, usually one a disk.

Rules kept here:
- Which folder a file is in follows from its name alone while all folders can take files: they take turns.
- A folder that is read-only gets no new files, and one that is too full none while another has room.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from cometmq.model.errors import StoreError
from cometmq.ports.disk import Disk, Entry
from cometmq.store.disk_space import used_percent
from cometmq.store.log.mapped_files import NAME_DIGITS, MappedFiles


class SpreadFiles(MappedFiles):
    """The files of several folders as one sequence."""

    def __init__(
        self,
        disk: Disk,
        folders: Sequence[Path],
        writable: Sequence[Path],
        file_size: int,
        full_above_percent: int = 100,
    ) -> None:
        super().__init__(disk, writable[0], file_size)
        self._folders = folders
        self._targets = sorted(writable)
        self._full_above_percent = full_above_percent

    def _found(self) -> list[tuple[Path, Entry]]:
        found = [
            (folder / entry.name, entry)
            for folder in self._folders
            for entry in self._disk.entries(folder)
            if not entry.is_folder
        ]
        found.sort(key=lambda item: item[1].name)
        for (path, entry), (other, following) in pairwise(found):
            if entry.name == following.name:
                raise StoreError(
                    f"{path} and {other} begin at the same offset; one of them does not belong here"
                )
        return found

    def path_of(self, start: int) -> Path:
        candidates = [folder for folder in self._targets if not self._is_full(folder)] or self._targets
        folder = candidates[start // self.file_size % len(candidates)]
        return folder / f"{start:0{NAME_DIGITS}}"

    def _is_full(self, folder: Path) -> bool:
        return used_percent(self._disk.usage(folder)) > self._full_above_percent
