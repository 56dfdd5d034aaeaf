"""How much is fuzzed, and from where: `FUZZ_FRAMES` and `FUZZ_SEED` in the environment."""

from __future__ import annotations

import os
from typing import Final

FRAMES: Final = int(os.environ.get("FUZZ_FRAMES", "50000"))
SEED: Final = int(os.environ.get("FUZZ_SEED", "479"))


def how_to_repeat(number: int) -> str:
    """What a failure says, so that it can be looked at again."""
    return f"frame {number} of seed {SEED}; repeat with FUZZ_SEED={SEED} FUZZ_FRAMES={number + 1}"
