"""How much is fuzzed, and from where: `FUZZ_FRAMES` and `FUZZ_SEED` in the environment.

`FUZZ_FRAMES` is the number of requests of all tests that fuzz a server or a client; `share` is what one of
them gets. The codec, which is tested without one, gets as many frames once more.
"""

from __future__ import annotations

import os
from typing import Final

FRAMES: Final = int(os.environ.get("FUZZ_FRAMES", "20000"))
SEED: Final = int(os.environ.get("FUZZ_SEED", "479"))


def share(percent: int) -> int:
    return FRAMES * percent // 100


def how_to_repeat(number: int) -> str:
    """What a failure says, so that it can be looked at again."""
    return f"frame {number} of seed {SEED}; repeat with FUZZ_SEED={SEED} FUZZ_FRAMES={FRAMES}"
