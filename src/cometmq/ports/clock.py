"""The clock: wall time for what people and files see, monotonic time for durations."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, as in files and messages; may jump."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment; never jumps."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
