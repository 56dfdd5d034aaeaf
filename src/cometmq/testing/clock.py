"""A clock that stands still until a test moves it."""

from __future__ import annotations


class VirtualClock:
    """A `Clock` that the test moves."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, ms: int) -> None:
        """Let time pass."""
        if ms < 0:
            raise ValueError(f"time does not run backwards, not by {ms} ms; see set_wall_clock")
        self._now_ms += ms
        self._monotonic_ms += ms

    def set_wall_clock(self, now_ms: int) -> None:
        """Let the wall clock jump in either direction; monotonic time does not notice."""
        self._now_ms = now_ms
