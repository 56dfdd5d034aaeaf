"""What a verification finds: where, what was expected there, and what is there instead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from cometmq.ports.disk import Buffer

MAX_FINDINGS: Final = 1000
"""How many findings are kept; one broken disk can have millions."""

_LOOK: Final = 1024 * 1024
_EMPTY: Final = bytes(_LOOK)


class Finding(msgspec.Struct, frozen=True):
    """Something that is not as it has to be."""

    file: Path
    offset: int
    """The place in the file, in bytes."""
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.file} at {self.offset}: expected {self.expected}, found {self.found}"


class Findings:
    """All findings of a verification."""

    def __init__(self) -> None:
        self._kept: list[Finding] = []
        self.total = 0

    def add(self, file: Path, offset: int, expected: str, found: object) -> None:
        self.total += 1
        if len(self._kept) < MAX_FINDINGS:
            self._kept.append(Finding(file, offset, expected, str(found)))

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


def first_set_byte(buffer: Buffer, start: int, end: int) -> int | None:
    """The first place from one to another that is not 0; None if all are."""
    while start < end:
        look = bytes(buffer[start : min(start + _LOOK, end)])
        if look != _EMPTY[: len(look)]:
            return start + len(look) - len(look.lstrip(b"\0"))
        start += len(look)
    return None
