"""A log in memory, and the recorded HA connections of Apache's master and slave."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import NamedTuple

from cometmq.replication.frames import HEAD

RECORDED = Path(__file__).parents[2] / "data" / "ha-stream.jsonl.gz"
RECORDED_START, RECORDED_END = 65_536, 214_312
RECORDED_SHA256 = "11b7b9951e32897b60d2060add42e44ec82c8348399941da96abc297e6df1e43"
FILE_SIZE = 65_536


class Chunk(NamedTuple):
    """Bytes of one read of a socket."""

    s: float
    to: str
    data: bytes


def recorded() -> list[list[Chunk]]:
    """The chunks of each connection."""
    connections: dict[int, list[Chunk]] = {}
    with gzip.open(RECORDED, "rt") as lines:
        for line in lines:
            entry = json.loads(line)
            if "hex" in entry:
                chunk = Chunk(entry["ms"] / 1000, entry["to"], bytes.fromhex(entry["hex"]))
                connections.setdefault(entry["conn"], []).append(chunk)
    return list(connections.values())


def frames_of(data: bytes) -> list[tuple[int, bytes]]:
    """Offset and bytes of each frame."""
    frames = []
    while data:
        offset, size = HEAD.unpack_from(data)
        frames.append((offset, data[HEAD.size : HEAD.size + size]))
        data = data[HEAD.size + size :]
    return frames


def recorded_log() -> bytes:
    """What the recorded master sent, from `RECORDED_START` on."""
    sent = b"".join(chunk.data for chunks in recorded() for chunk in chunks if chunk.to == "slave")
    found = b"".join(body for _, body in frames_of(sent))
    assert hashlib.sha256(found).hexdigest() == RECORDED_SHA256
    return found


class MemoryLog:
    """The log of a master."""

    def __init__(self, content: bytes = b"", start: int = 0, file_size: int = FILE_SIZE) -> None:
        self.content = content
        self.min_offset = start
        self.file_size = file_size

    @property
    def max_offset(self) -> int:
        return self.min_offset + len(self.content)

    def readable(self, offset: int, most: int) -> memoryview:
        file_end = (offset // self.file_size + 1) * self.file_size
        at = offset - self.min_offset
        return (
            memoryview(self.content)[at : min(at + most, file_end - self.min_offset)]
            if at >= 0
            else memoryview(b"")
        )
