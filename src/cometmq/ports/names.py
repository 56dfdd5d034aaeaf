"""Names that become parts of paths: the one place where text of others is let into the file system.

Rules kept here: topics, groups and client ids come from peers, from records of a log or from files that
somebody may have changed. Whoever makes a path of such a text does it with `child`, which leaves the folder
under no spelling, whatever was checked before.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

MAX_NAME_BYTES: Final = 255
"""What file systems take as one name."""

_NOT_NAMES: Final = frozenset({"", ".", ".."})
_SEPARATORS: Final = frozenset({"/", "\0", os.sep, os.altsep or os.sep})


class UnsafeNameError(ValueError):
    """A text that cannot be the name of a file in a folder."""


def is_file_name(name: str) -> bool:
    """Whether a text can be the name of one file or folder inside of another."""
    if name in _NOT_NAMES or not _SEPARATORS.isdisjoint(name):
        return False
    try:
        return len(os.fsencode(name)) <= MAX_NAME_BYTES
    except UnicodeEncodeError:  # half a character
        return False


def child(folder: Path, *names: str) -> Path:
    """The path of these names below a folder; raises `UnsafeNameError` if one of them leads elsewhere."""
    for name in names:
        if not is_file_name(name):
            raise UnsafeNameError(f"{name[:MAX_NAME_BYTES]!r} cannot be the name of a file in {folder}")
    return folder.joinpath(*names)
