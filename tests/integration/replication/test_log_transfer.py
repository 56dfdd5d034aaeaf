"""Two stores on one event loop, the log of one copied to the other over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from cometmq.ports.clock import SystemClock
from cometmq.ports.disk import SystemDisk
from cometmq.replication.client import HaClient
from cometmq.replication.frames import HEAD, REPORT
from cometmq.replication.server import MAX_CONNECTIONS, HaServer
from cometmq.store.config import StoreConfig
from cometmq.store.message_store import MessageStore
from cometmq.store.status import PutStatus
from tests.unit.store.store_kit import LOG_FILE_SIZE, a_message, bodies_in, running, small
from tests.waiting import eventually

QUICK = {"ha_send_heartbeat_interval": 200, "ha_housekeeping_interval": 5000}


class Master:
    """A store with its HA port."""

    def __init__(self, store: MessageStore, server: HaServer, port: int) -> None:
        self.store, self.server, self.port = store, server, port
        self.address = f"127.0.0.1:{port}"

    def fill(self, count: int, size: int = 100) -> None:
        for number in range(count):
            status = self.store.put(a_message(b"%d " % number + b"x" * size, queue_id=number % 3)).status
            assert status is PutStatus.PUT_OK


@asynccontextmanager
async def a_master(root: Path, **changes: object) -> AsyncIterator[Master]:
    config = small(root, **QUICK | changes)
    async with running(SystemDisk(), config, SystemClock()) as store:
        server = HaServer(store, lambda: config, "127.0.0.1", 0)
        await server.start()
        try:
            yield Master(store, server, server.port)
        finally:
            await server.stop()


@asynccontextmanager
async def a_slave(root: Path, address: str, **changes: object) -> AsyncIterator[MessageStore]:
    config = slave_config(root, **changes)
    async with running(SystemDisk(), config, SystemClock()) as store:
        client = HaClient(store, lambda: config, SystemClock())
        client.follow(address)
        client.start()
        try:
            yield store
        finally:
            await client.stop()


def slave_config(root: Path, **changes: object) -> StoreConfig:
    return small(root, broker_role="SLAVE", **QUICK | changes)


def log_of(store: MessageStore, start: int = 0) -> bytes:
    found = b""
    while body := store.log.readable(start + len(found), LOG_FILE_SIZE):
        found += body
    return found


async def same_end(master: Master, slave: MessageStore) -> None:
    await eventually(
        lambda: (slave.log.max_offset, master.store.log.max_offset),
        "both logs end at the same offset",
        lambda ends: ends[0] == ends[1],
    )


async def test_a_slave_gets_everything_of_an_empty_master_and_dispatches_it(tmp_path: Path) -> None:
    async with a_master(tmp_path / "a") as master, a_slave(tmp_path / "b", master.address) as slave:
        await eventually(lambda: master.server.copies.count(0), "the slave counts", lambda count: count == 2)
        master.fill(200, 1000)  # several files
        await same_end(master, slave)
        assert len(slave.log.files.files) > 2
        assert log_of(slave) == log_of(master.store)
        for queue_id in range(3):
            assert bodies_in(slave.files, queue_id=queue_id) == bodies_in(
                master.store.files, queue_id=queue_id
            )
        assert slave.put(a_message()).status is PutStatus.SERVICE_NOT_AVAILABLE


async def test_an_empty_slave_gets_the_last_file_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with a_master(tmp_path / "a") as master:
        master.fill(100, 1500)
        start = master.store.log.files.files[-1].start
        async with a_slave(tmp_path / "b", master.address) as slave:
            await same_end(master, slave)
            assert slave.log.min_offset == start
        master.fill(100, 1500)
        async with a_slave(tmp_path / "b", master.address) as slave:
            await same_end(master, slave)
            assert slave.log.min_offset == start
            assert log_of(slave, start) == log_of(master.store, start)
            newest = bodies_in(master.store.files)[-5:]
            assert bodies_in(slave.files)[-5:] == newest
        async with a_slave(tmp_path / "b", master.address) as slave:
            assert bodies_in(slave.files)[-5:] == newest


async def test_large_messages_come_in_parts(tmp_path: Path) -> None:
    async with (
        a_master(tmp_path / "a", ha_transfer_batch_size=100) as master,
        a_slave(tmp_path / "b", master.address) as slave,
    ):
        master.fill(20, 1500)
        await same_end(master, slave)
        assert log_of(slave) == log_of(master.store)
        assert bodies_in(slave.files) == bodies_in(master.store.files)


async def test_sends_are_released_when_the_slave_has_them(tmp_path: Path) -> None:
    async with a_master(tmp_path / "a") as master, a_slave(tmp_path / "b", master.address) as slave:
        ended: list[tuple[int, bool]] = []

        def note(end: int, enough: bool) -> None:
            ended.append((end, enough))

        ends = [master.store.put(a_message()).end_offset for _ in range(5)]
        for end in ends:
            master.server.when_copied(end, 2, partial(note, end))
        await eventually(lambda: len(ended) == 5)
        assert ended == [(end, True) for end in ends]
        assert slave.log.max_offset >= ends[-1]
        assert master.server.in_sync == 2


async def test_without_a_slave_a_send_fails_after_the_timeout(tmp_path: Path) -> None:
    async with a_master(tmp_path / "a", slave_timeout=50) as master:
        ended: list[bool] = []
        master.server.when_copied(master.store.put(a_message()).end_offset, 2, ended.append)
        assert ended == []
        await eventually(lambda: ended == [False])
        assert master.store.writer.on_append is None  # nobody listens to appends without a slave


async def test_with_synchronous_flush_only_what_is_on_the_disk_is_reported(tmp_path: Path) -> None:
    settings = {"flush_disk_type": "SYNC_FLUSH"}
    async with (
        a_master(tmp_path / "a") as master,
        a_slave(tmp_path / "b", master.address, **settings) as slave,
    ):
        flushed: list[int] = []
        end = 0
        for _ in range(20):
            end = master.store.put(a_message()).end_offset
            master.server.when_copied(end, 2, lambda _: flushed.append(slave.flusher.flushed_offset))
            await asyncio.sleep(0)
        await eventually(lambda: len(flushed) == 20)
        assert flushed[-1] >= end
        ends = [record.physical_offset for record in slave.log.walk(0)]
        assert all(at > start for at, start in zip(flushed, ends, strict=True))


async def test_a_slave_that_is_ahead_is_refused_and_keeps_its_log(tmp_path: Path) -> None:
    async with running(SystemDisk(), small(tmp_path / "b"), SystemClock()) as store:
        for _ in range(10):
            store.put(a_message(b"mine"))
        before = log_of(store)
    async with a_master(tmp_path / "a") as master, a_slave(tmp_path / "b", master.address) as slave:
        master.fill(1)
        await eventually(lambda: "ends at" in "".join(master.server.reasons.values()))
        assert log_of(slave) == before
        assert master.server.copies.count(0) == 1


async def test_a_slave_with_other_file_sizes_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_master(tmp_path / "a") as master:
        master.fill(100, 1500)
        other = LOG_FILE_SIZE - 1024
        async with a_slave(tmp_path / "b", master.address, mapped_file_size_commit_log=other) as slave:
            await eventually(lambda: "mappedFileSizeCommitLog" in caplog.text)
            assert slave.log.max_offset == 0


async def connect(master: Master) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", master.port)


async def test_forged_reports_close_the_connection_and_release_nothing(tmp_path: Path) -> None:
    async with a_master(tmp_path / "a") as master:
        master.fill(3)
        end = master.store.log.max_offset
        ended: list[bool] = []
        master.server.when_copied(end, 2, ended.append)
        forgeries = (
            REPORT.pack(end) * 100,
            REPORT.pack(end + 1),
            REPORT.pack(-5),
            REPORT.pack(1) + REPORT.pack(2**63 - 1),
            b"GET / HTTP/1.1\r\n\r\n",
        )
        for forged in forgeries[1:]:
            reader, writer = await connect(master)
            writer.write(forged)
            await reader.read()  # until it is closed
            writer.close()
        reader, writer = await connect(master)
        writer.write(forgeries[0])
        assert HEAD.unpack(await reader.readexactly(HEAD.size)) == (end, 0)
        assert ended == []
        assert master.server.copies.count(0) == 1
        writer.close()


async def test_peers_that_are_refused_do_not_fill_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """B11: whatever numbers they give as a reason."""
    async with a_master(tmp_path / "a") as master:
        for number in range(20):
            reader, writer = await connect(master)
            writer.write(REPORT.pack(10**12 + number))
            with suppress(ConnectionError):  # it is closed, or reset
                assert await reader.read() == b""
            writer.close()
    assert caplog.text.count("is closed") == 1


async def test_a_peer_that_does_not_read_has_little_waiting_and_others_go_on(tmp_path: Path) -> None:
    size = 1 << 20
    big = {"mapped_file_size_commit_log": size, "max_message_size": size}
    async with a_master(tmp_path / "a", **big) as master:
        _, writer = await asyncio.open_connection("127.0.0.1", master.port, limit=1024)
        writer.write(REPORT.pack(0))
        await writer.drain()
        async with a_slave(tmp_path / "b", master.address, **big) as slave:
            await eventually(lambda: master.server.copies.count(0) == 2)
            for _ in range(24):
                master.fill(20, 45_000)
                await asyncio.sleep(0)
            await same_end(master, slave)
            (stuck, *_) = [each for each in master.server.connections if each.feed.acked < 0]
            assert stuck.feed.sent < master.store.log.max_offset
        writer.close()


async def test_more_peers_than_allowed_are_turned_away(tmp_path: Path) -> None:
    async with a_master(tmp_path / "a") as master:
        peers = [await connect(master) for _ in range(MAX_CONNECTIONS + 5)]
        for reader, _ in peers[MAX_CONNECTIONS:]:
            try:
                assert await reader.read() == b""
            except ConnectionResetError:
                pass
        assert len(master.server.connections) == MAX_CONNECTIONS
        for _, writer in peers:
            writer.close()


@pytest.mark.parametrize(
    ("allowed", "is_let_in"), [("", True), ("10.0.0.1, 127.0.0.0/8", True), ("10.0.0.0/8,::1", False)]
)
async def test_only_allowed_addresses_are_let_in(tmp_path: Path, allowed: str, is_let_in: bool) -> None:
    async with a_master(tmp_path / "a", ha_allowed_replicas=allowed) as master:
        master.fill(1)
        reader, writer = await connect(master)
        writer.write(REPORT.pack(0))
        try:
            answer = await reader.read(HEAD.size)
        except ConnectionResetError:
            answer = b""
        assert bool(answer) is is_let_in
        assert bool(master.server.connections) is is_let_in
        writer.close()


async def test_silent_peers_are_given_up(tmp_path: Path) -> None:
    async with a_master(tmp_path / "a", ha_housekeeping_interval=100) as master:
        reader, writer = await connect(master)
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        writer.close()
        await eventually(lambda: not master.server.connections)


async def test_a_slave_reconnects_when_its_master_is_back(tmp_path: Path) -> None:
    async with a_master(tmp_path / "a") as master:
        port = master.port
        async with a_slave(tmp_path / "b", master.address) as slave:
            master.fill(10)
            await same_end(master, slave)
            await master.server.stop()
            master.fill(10)
            again = HaServer(master.store, lambda: small(tmp_path, **QUICK), "127.0.0.1", port)
            await again.start()
            try:
                await same_end(master, slave)
                assert log_of(slave) == log_of(master.store)
            finally:
                await again.stop()
