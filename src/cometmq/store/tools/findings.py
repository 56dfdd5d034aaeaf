"""Findings of a verification: where, what was expected, and what was found instead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from cometmq.ports.disk import Buffer

MAX_FINDINGS: Final = 1000
"""How many findings are kept; a broken disk can have millions."""

_CHUNK: Final = 1024 * 1024
_EMPTY: Final = bytes(_CHUNK)


class Finding(msgspec.Struct, frozen=True):
    """One difference between expectation and file."""

    file: Path
    offset: int
    """The position in the file, in bytes."""
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

    def expect_nothing(self, file: Path, buffer: Buffer, start: int, end: int, expected: str) -> None:
        """Add the first byte of a range that is not 0."""
        at = first_set_byte(buffer, start, end)
        if at is not None:
            self.add(file, at, expected, f"{buffer[at]:#04x}")

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


def first_set_byte(buffer: Buffer, start: int, end: int) -> int | None:
    """The position of the first byte that is not 0; None if all are."""
    while start < end:
        chunk = bytes(buffer[start : min(start + _CHUNK, end)])
        if chunk != _EMPTY[: len(chunk)]:
            return start + len(chunk) - len(chunk.lstrip(b"\0"))
        start += len(chunk)
    return None
