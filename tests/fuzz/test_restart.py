"""Restarts in the middle of a run: what requests have left on the disk neither stops nor slows a start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.run import fuzz_run
from tests.fuzz.settings import share


@pytest.mark.timeout(1800)
async def test_a_broker_starts_again_after_an_orderly_stop_and_after_a_kill(tmp_path: Path) -> None:
    """On the same store and the same configuration files, within 5 s, and good clients are served."""
    part = share(4)
    async with fuzz_run(tmp_path / "run") as run:
        broker = run.servers.broker
        first = await run.attack_broker(2 * 10**6, part)
        await run.stop(broker, first)
        await run.start_again(broker)
        second = await run.attack_broker(3 * 10**6, part)
        broker.kill()
        second.give_up()
        await run.start_again(broker)
        await run.check_service("after-a-kill")
        third = await run.attack_broker(4 * 10**6, part)
        await run.check_service("after-all")
        await run.stop(broker, third)
        await run.stop(run.servers.namesrv)
        await run.finish()


@pytest.mark.timeout(600)
async def test_a_name_server_starts_again_with_what_it_was_told(tmp_path: Path) -> None:
    """Its key-value table and its settings are whole after a kill, too."""
    async with fuzz_run(tmp_path / "run") as run:
        namesrv = run.servers.namesrv
        attack = await run.attack_namesrv(5 * 10**6, share(2))
        namesrv.kill()
        attack.give_up()
        await run.start_again(namesrv)
        attack = await run.attack_namesrv(6 * 10**6, share(2))
        await run.stop(namesrv, attack)
        await run.start_again(namesrv)
        await run.stop(run.servers.broker)
        await run.stop(namesrv)
        await run.finish()
