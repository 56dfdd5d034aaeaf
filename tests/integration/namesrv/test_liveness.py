"""How a running name server notices that brokers are gone (N5, N6)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, HandlerTable
from cometmq.remoting.server import RemotingServer
from cometmq.testing import VirtualClock
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import ONEWAY_FLAG, Command
from cometmq.wire.headers.namesrv import NotifyMinBrokerIdChangeRequest
from tests.integration.namesrv.namesrv_kit import A1, A2, CLUSTER, NAME, OK, Visit, running_namesrv
from tests.waiting import eventually

OFTEN_MS = 5


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[Visit]:
    async with running_namesrv(tmp_path) as visit:
        yield visit


def knows(namesrv: Visit, address: str) -> bool:
    tables = namesrv.server.state.tables
    return any(address in broker.broker_addrs.values() for broker in tables.brokers.values())


# Connections.


async def test_a_closed_connection_removes_its_broker_at_once(namesrv: Visit) -> None:
    """N6: no scan has to come by."""
    broker = namesrv.broker()
    await broker.register()
    await broker.vanish()
    await eventually(lambda: not knows(namesrv, A1), "the broker is removed")
    assert (await namesrv.route("T1")).code == 17
    assert (await namesrv.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body == (
        b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
    )


async def test_case_6_a_late_close_of_the_old_connection_removes_nothing(namesrv: Visit) -> None:
    """N6: the broker has registered on a new one since."""
    broker = namesrv.broker()
    await broker.register()
    old = broker.reconnect()
    await broker.register()
    connections = namesrv.server.server.connections
    open_before = len(connections)
    await old.stop()
    await eventually(lambda: len(connections) < open_before, "the server sees the close")
    assert await namesrv.addresses("T1") == {NAME: {"0": A1}}


async def test_a_connection_that_only_asks_takes_nobody_with_it(namesrv: Visit) -> None:
    """N5, N6: heartbeats and questions do not move a broker to another connection."""
    broker = namesrv.broker()
    await broker.register()
    other = namesrv.broker()
    await other.heartbeat()
    await other.query_version(other.version)
    connections = namesrv.server.server.connections
    open_before = len(connections)
    await other.vanish()
    await eventually(lambda: len(connections) < open_before, "the server sees the close")
    assert knows(namesrv, A1)


async def test_an_idle_broker_is_removed_with_its_connection(tmp_path: Path) -> None:
    """N6: a connection without a byte for too long is closed."""
    async with running_namesrv(tmp_path, server_channel_max_idle_time_seconds=1) as namesrv:
        await namesrv.broker().register()
        await eventually(lambda: not knows(namesrv, A1), "the idle broker is removed")


async def test_a_clean_stop_unregisters(namesrv: Visit) -> None:
    """N6: when it is answered, it is done; also for a broker that nobody knows."""
    master, slave = namesrv.broker(), namesrv.broker(A2, 1)
    await master.register()
    await slave.register()
    assert await slave.unregister() == OK
    assert await namesrv.addresses("T1") == {NAME: {"0": A1}}
    assert await slave.unregister() == OK
    assert await master.unregister() == OK
    assert (await namesrv.route("T1")).code == 17


# Silence.


async def test_brokers_that_were_silent_for_too_long_are_removed_and_disconnected(tmp_path: Path) -> None:
    """N6: 120 s, or what the broker said; the others stay."""
    clock = VirtualClock()
    async with running_namesrv(tmp_path, clock=clock, scan_not_active_broker_interval=OFTEN_MS) as namesrv:
        silent, patient = namesrv.broker(), namesrv.broker(A2, 1)
        patient.header.heartbeat_timeout_millis = 200_000
        await silent.register()
        await patient.register()
        clock.advance(120_000)
        namesrv.server.remove_silent_brokers()
        assert knows(namesrv, A1), "the time is not over yet"
        clock.advance(1)
        await eventually(lambda: not knows(namesrv, A1), "the silent broker is removed")
        await eventually(lambda: not silent.client.connections, "its connection is closed")
        assert await namesrv.addresses("T1") == {NAME: {"1": A2}}
        clock.advance(80_000)
        await eventually(lambda: not knows(namesrv, A2), "the other one in its own time")


@pytest.mark.parametrize("sign", ["heartbeat", "question", "registration"])
async def test_a_sign_of_life_keeps_a_broker(tmp_path: Path, sign: str) -> None:
    """N5: a heartbeat, a question for the data version, a registration."""
    clock = VirtualClock()
    async with running_namesrv(tmp_path, clock=clock, scan_not_active_broker_interval=OFTEN_MS) as namesrv:
        broker = namesrv.broker()
        await broker.register()
        for _ in range(3):
            clock.advance(100_000)
            if sign == "heartbeat":
                await broker.heartbeat()
            elif sign == "question":
                await broker.query_version(broker.version)
            else:
                await broker.register()
            namesrv.server.remove_silent_brokers()
            assert knows(namesrv, A1)
        clock.advance(120_001)
        await eventually(lambda: not knows(namesrv, A1), "without signs it is removed")


async def test_case_2_a_replaced_address_expires_without_taking_the_routes(tmp_path: Path) -> None:
    """N6: its live entry goes, the master at the new address stays."""
    clock = VirtualClock()
    async with running_namesrv(tmp_path, clock=clock, scan_not_active_broker_interval=OFTEN_MS) as namesrv:
        await namesrv.broker(A1).register()
        clock.advance(60_000)
        await namesrv.broker(A2).register()
        live = namesrv.server.state.tables.live
        assert (CLUSTER, A1) in live
        clock.advance(60_001)
        await eventually(lambda: (CLUSTER, A1) not in live, "the stale entry is deleted")
        assert await namesrv.addresses("T1") == {NAME: {"0": A2}}


async def test_a_scan_interval_is_changed_while_it_runs(tmp_path: Path) -> None:
    """N6, N9: from the next scan on."""
    clock = VirtualClock()
    async with running_namesrv(tmp_path, clock=clock, scan_not_active_broker_interval=20) as namesrv:
        await namesrv.broker().register()
        await namesrv.configure("scanNotActiveBrokerInterval=1")
        clock.advance(120_001)
        await eventually(lambda: not knows(namesrv, A1), "the silent broker is removed")


# Notices.


class Members:
    """The brokers of a group with their own ports, and the notices that they get."""

    def __init__(self) -> None:
        self.servers: list[RemotingServer] = []
        self.notices: list[tuple[int, NotifyMinBrokerIdChangeRequest, bool]] = []

    async def add(self) -> str:
        """A new member; its address."""
        number = len(self.servers)
        handlers = HandlerTable()

        def notice(header: NotifyMinBrokerIdChangeRequest, request: Command, _: Connection) -> Answer:
            self.notices.append((number, header, request.flag == ONEWAY_FLAG))
            return Answer()

        handlers.add(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, NotifyMinBrokerIdChangeRequest, notice)
        server = RemotingServer(host="127.0.0.1", handlers=handlers)
        await server.start()
        self.servers.append(server)
        return f"127.0.0.1:{server.port}"

    def told(self) -> list[int]:
        return sorted(number for number, _, _ in self.notices)


@pytest.fixture
async def members() -> AsyncIterator[Members]:
    group = Members()
    yield group
    for server in group.servers:
        await server.stop()


async def test_members_are_told_of_a_new_smallest_id_in_both_directions(
    tmp_path: Path, members: Members
) -> None:
    """N4, N6: one-way, to the brokers' own ports; the newcomer itself is not told."""
    async with running_namesrv(tmp_path, notify_min_broker_id_changed=True) as namesrv:
        first, second, third = [await members.add() for _ in range(3)]
        ids = enumerate((first, second, third), start=1)
        brokers = [namesrv.broker(address, number, acting=True) for number, address in ids]
        await brokers[1].register()
        await brokers[2].register()
        assert members.notices == []

        await brokers[0].register()
        await eventually(lambda: members.told() == [1, 2], "the two others are told that one came")
        _, header, is_oneway = members.notices[0]
        assert is_oneway
        assert (header.min_broker_id, header.min_broker_addr) == (1, first)
        assert (header.offline_broker_addr, header.ha_broker_addr) == (None, brokers[0].header.ha_server_addr)

        members.notices.clear()
        await brokers[0].vanish()
        await eventually(lambda: members.told() == [1, 2], "everyone left is told that it went")
        _, header, _ = members.notices[0]
        assert (header.min_broker_id, header.min_broker_addr) == (2, second)
        assert (header.offline_broker_addr, header.ha_broker_addr) == (first, None)


async def test_nobody_is_told_unless_that_is_switched_on(tmp_path: Path, members: Members) -> None:
    """N6: it can be switched on while the name server runs."""
    async with running_namesrv(tmp_path) as namesrv:
        first, second = await members.add(), await members.add()
        one, two = namesrv.broker(first, 0, acting=True), namesrv.broker(second, 1, acting=True)
        await two.register()
        await one.register()
        await namesrv.configure("notifyMinBrokerIdChanged=true")
        await one.unregister()
        await eventually(lambda: len(members.notices) == 1, "the departure is told")
        assert members.notices[0][1].offline_broker_addr == first
