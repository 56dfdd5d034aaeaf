"""Memory in use, as on a machine that has run for a while.

On a virtual machine whose host reclaims free memory, the first use of a free page costs ten times as much as
later uses, and a server that writes more bytes per message pays more of it. So free memory is filled with
page cache first: its pages belong to the machine already.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.broker.contest import Say

_AT_ONCE: Final = 1024 * 1024
_AVAILABLE: Final = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)


@contextmanager
def memory_in_use(folder: Path, say: Say) -> Iterator[None]:
    """What is free is filled with the page cache of a file that takes no room on the disk."""
    size = _available_bytes()
    say(f"putting {size / 1e9:.1f} GB of memory to use")
    path = folder / "holes"
    buffer = bytearray(_AT_ONCE)
    with path.open("wb+", buffering=0) as holes:
        holes.truncate(size)
        while holes.readinto(buffer):
            pass
    try:
        yield
    finally:
        path.unlink()


def _available_bytes() -> int:
    found = _AVAILABLE.search(Path("/proc/meminfo").read_text())
    return 1024 * int(found[1]) if found else 0
