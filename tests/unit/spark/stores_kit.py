"""Stores that Apache RocketMQ 5.3.3 wrote, and what to compare of one."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

DATA = Path(__file__).parents[2] / "data"

VECTOR_SIZES: dict[str, object] = {
    "mapped_file_size_commit_log": 1048576,
    "mapped_file_size_consume_queue": 60000,
    "max_hash_slot_num": 500,
    "max_index_num": 2000,
    "message_delay_level": "1s 2s 3s 4s 5s 6s 7s 8s 9s 10s 20m 30m 1h 2h",
}
"""The settings of those stores."""


def unpacked(name: str, folder: Path) -> Path:
    """Unpack a store, e.g. `store-clean.tar.gz`; the answer is where it is."""
    with tarfile.open(DATA / "store" / name) as archive:
        archive.extractall(folder, filter="data")
    return folder / "store"


def lines_of(name: str) -> list[str]:
    """The lines of a packed text."""
    return gzip.decompress((DATA / name).read_bytes()).decode("utf-8").splitlines()


def files_below(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def index_contents(root: Path) -> list[bytes]:
    """The index files in their order; their names are the times at which they were made."""
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]
