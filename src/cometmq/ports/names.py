"""Safe file names: the only way from peers' text into the file system.

Rules kept here: topics, groups and client ids come from peers, log records or changed files. Every path with
such a text is made by `child`, which never leaves the folder, whatever was checked before.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

MAX_NAME_BYTES: Final = 255
"""The longest name on a file system."""

_NOT_NAMES: Final = frozenset({"", ".", ".."})
_SEPARATORS: Final = frozenset({"/", "\0", os.sep, os.altsep or os.sep})


class UnsafeNameError(ValueError):
    """A text that cannot be the name of a file in a folder."""


def is_file_name(name: str) -> bool:
    """Whether a text can be the name of one file or folder."""
    if name in _NOT_NAMES or not _SEPARATORS.isdisjoint(name):
        return False
    try:
        return len(os.fsencode(name)) <= MAX_NAME_BYTES
    except UnicodeEncodeError:  # half a character
        return False


def child(folder: Path, *names: str) -> Path:
    """Returns the path of these names below a folder; raises `UnsafeNameError`."""
    for name in names:
        if not is_file_name(name):
            raise UnsafeNameError(f"{name[:MAX_NAME_BYTES]!r} cannot be the name of a file in {folder}")
    return folder.joinpath(*names)
