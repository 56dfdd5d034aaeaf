"""The clock and its twin for tests."""

from __future__ import annotations

import time

import pytest

from cometmq.ports.clock import Clock, SystemClock
from cometmq.testing import VirtualClock


def test_the_system_clock_tells_both_times_in_milliseconds() -> None:
    """Wall time since 1970, and a time that never runs backwards."""
    clock: Clock = SystemClock()
    assert abs(clock.now_ms() - time.time() * 1000) < 1000
    earlier = clock.monotonic_ms()
    assert clock.monotonic_ms() >= earlier


def test_a_virtual_clock_stands_still_until_it_is_moved() -> None:
    """Both times move together."""
    clock = VirtualClock(now_ms=1_000)
    as_port: Clock = clock
    assert (as_port.now_ms(), as_port.monotonic_ms()) == (1_000, 0)
    clock.advance(250)
    assert (as_port.now_ms(), as_port.monotonic_ms()) == (1_250, 250)


def test_the_wall_clock_may_jump_and_durations_do_not_notice() -> None:
    """As when an administrator sets the time."""
    clock = VirtualClock(now_ms=1_000)
    clock.set_wall_clock(5)
    assert (clock.now_ms(), clock.monotonic_ms()) == (5, 0)


def test_time_does_not_run_backwards() -> None:
    """A negative step is a mistake of the test."""
    with pytest.raises(ValueError, match="backwards"):
        VirtualClock().advance(-1)
