"""Two addresses with one name and id: the route moves as with Apache, and operators get to know (N3)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cometmq.cli.doctor.facts import gather
from cometmq.cli.doctor.servers import check_takeovers
from cometmq.client.admin.admin import Admin
from cometmq.model.topic import DataVersion
from cometmq.namesrv.takeovers import KEPT_MS, LOG_AGAIN_MS, MOST_KEPT
from cometmq.testing.clock import VirtualClock
from tests.integration.namesrv.namesrv_kit import NAME, Visit, running_namesrv

MINE, OTHER = "10.0.0.1:10911", "10.9.9.9:10911"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(1_700_000_000_000)


@pytest.fixture
async def namesrv(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Visit]:
    async with running_namesrv(tmp_path, clock=clock) as visit:
        yield visit


async def test_a_route_that_is_taken_moves_and_is_logged_once(
    namesrv: Visit, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    mine, other = namesrv.broker(MINE), namesrv.broker(OTHER)
    await mine.register()
    assert not namesrv.server.state.takeovers.recent()
    for _ in range(5):
        await other.register()
        assert await namesrv.addresses("T1") == {NAME: {"0": OTHER}}
        await mine.register()
        await mine.register()  # a heartbeat is no change
    (moved,) = namesrv.server.state.takeovers.recent()
    assert (moved.broker_name, moved.broker_id, moved.count) == (NAME, 0, 10)
    assert {moved.old_addr, moved.new_addr} == {MINE, OTHER}
    lines = [line for line in caplog.messages if "is registered at" in line]
    assert len(lines) == 1
    assert MINE in lines[0]
    assert OTHER in lines[0]
    assert "firewall" in lines[0]
    clock.advance(LOG_AGAIN_MS)
    await other.register()
    assert len([line for line in caplog.messages if "is registered at" in line]) == 2
    assert namesrv.server.state.takeovers.total == 11


async def test_who_claims_to_be_newer_keeps_the_route_and_is_seen_all_the_same(namesrv: Visit) -> None:
    """Outside of controllers nobody has a state version, and any would win for good."""
    mine, other = namesrv.broker(MINE), namesrv.broker(OTHER)
    await mine.register()
    other.version = DataVersion(7, 1, 1)
    await other.register()
    await mine.register()
    assert await namesrv.addresses("T1") == {NAME: {"0": OTHER}}
    (moved,) = namesrv.server.state.takeovers.recent()
    assert (moved.old_addr, moved.new_addr, moved.count) == (MINE, OTHER, 2)


async def test_a_broker_that_comes_back_where_it_was_or_after_it_left_is_nothing_to_tell(
    namesrv: Visit,
) -> None:
    mine, other = namesrv.broker(MINE), namesrv.broker(OTHER)
    await mine.register()
    await mine.register()
    await mine.unregister()
    await other.register()
    assert not namesrv.server.state.takeovers.recent()


async def test_who_unregisters_somebody_else_is_named(
    namesrv: Visit, caplog: pytest.LogCaptureFixture
) -> None:
    mine, stranger = namesrv.broker(MINE), namesrv.broker(MINE)
    await mine.register()
    await stranger.unregister()
    assert "over another connection than it registered on" in caplog.text


async def test_the_record_is_bounded_in_number_and_time(namesrv: Visit, clock: VirtualClock) -> None:
    for number in range(MOST_KEPT + 10):
        await namesrv.broker(MINE, name=f"b{number}").register()
        await namesrv.broker(OTHER, name=f"b{number}").register()
    takeovers = namesrv.server.state.takeovers
    assert len(takeovers.recent()) == len(takeovers._logged_ms) == MOST_KEPT
    clock.advance(KEPT_MS + 1)
    assert takeovers.recent() == []
    assert not takeovers._logged_ms


async def test_the_doctor_sees_it_with_both_addresses_and_what_to_do(namesrv: Visit) -> None:
    await namesrv.broker("127.0.0.1:1").register()
    await namesrv.broker("127.0.0.1:2").register()
    async with Admin(namesrv=namesrv.address, call_timeout_ms=5000) as admin:
        (finding,) = check_takeovers(await gather(admin, None, 10))
    assert finding.check == "route-takeover"
    assert "127.0.0.1:1 and from 127.0.0.1:2" in finding.text
    assert "another brokerName or brokerId" in finding.advice
