"""How late the event loop is."""

from __future__ import annotations

import asyncio
import time

from cometmq.remoting.metrics.loop_probe import INTERVAL_S, LoopProbe


async def test_a_loop_that_was_blocked_is_late_and_silent() -> None:
    probe = LoopProbe()
    ticked = asyncio.Event()
    probe.on_tick.append(ticked.set)
    probe.start()
    try:
        await asyncio.wait_for(ticked.wait(), 30)
        assert sum(probe.delays.counts) == 1
        ticked.clear()
        time.sleep(0.3)  # noqa: ASYNC251 - what is measured is that this holds up everybody
        assert probe.silent_s >= 0.3 - 2 * INTERVAL_S
        await asyncio.wait_for(ticked.wait(), 30)
        assert probe.delays.total >= 0.15
    finally:
        probe.stop()
    assert probe.silent_s == 0.0


async def test_a_probe_that_does_not_run_says_nothing() -> None:
    probe = LoopProbe()
    probe.stop()
    assert probe.silent_s == 0.0
