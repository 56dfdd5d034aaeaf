"""What the tests of the index share: a small index on a simulated disk."""

from __future__ import annotations

from pathlib import Path

from cometmq.ports.clock import Clock
from cometmq.ports.disk import Disk
from cometmq.store.index.index import Index
from cometmq.testing.clock import VirtualClock

FOLDER = Path("/store/index")
SLOTS, ENTRIES = 7, 20
EVER = 2**63 - 1
START_MS = 1_700_000_000_000


def an_index(disk: Disk, clock: Clock | None = None, *, entries: int = ENTRIES) -> Index:
    """An index with small files, as an orderly start finds it."""
    index = Index(disk, clock or VirtualClock(), FOLDER, SLOTS, entries)
    index.load(stopped_cleanly=True, safe_until_ms=0)
    return index


def found(index: Index, key: str, *, topic: str = "orders", count: int = 64) -> list[int]:
    """Where messages with a key are, newest first."""
    return index.find(topic, key, count, 0, EVER).physical_offsets


def put(
    index: Index, topic: str, unique_key: str | None, keys: str | None, physical_offset: int, time_ms: int
) -> None:
    """Index a message with the keys that these texts are."""
    index.put(topic, (unique_key or "").encode(), (keys or "").encode(), physical_offset, time_ms)


def files(disk: Disk, index: Index) -> list[bytes]:
    """The content of all index files, oldest first, with everything that was put."""
    index.write()
    return [disk.read(FOLDER / entry.name) or b"" for entry in disk.entries(FOLDER)]
