"""The store that Apache RocketMQ 5.3.3 wrote, unpacked as far as a test needs it."""

from __future__ import annotations

import tarfile
from pathlib import Path

DATA = Path(__file__).parents[2] / "data" / "store"


def unpack_clean_store(folder: Path, *parts: str) -> Path:
    """Unpack files and folders of the store after an orderly shutdown; the answer is where the store is."""
    with tarfile.open(DATA / "store-clean.tar.gz") as archive:
        wanted = tuple(f"store/{part}" for part in parts)
        members = [member for member in archive.getmembers() if member.name.startswith(wanted)]
        archive.extractall(folder, members, filter="data")
    return folder / "store"
