"""The HA port of a master: sends the log to its slaves, and tells who waits for copies.

Rules kept here:
- There is no task for a slave or for a send. Slaves are served when something was appended, when they have
  reported or taken what was sent, and every second.
- A slave that does not read has a bounded number of bytes waiting for it, and the others go on. Old parts of
  the log are read from the disk on another thread.
- Without slaves nobody listens to appends.
- Nobody on this port is known, and so everybody can read the whole log. What a peer claims is checked by
  `feed.py`; the number of peers is limited, and so are their addresses if `haAllowedReplicas` is set.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Final, cast

import msgspec

from cometmq.model.errors import CometError
from cometmq.ports.rarely import Rarely
from cometmq.remoting import descriptor_shares
from cometmq.remoting.open_ports import is_loopback
from cometmq.replication.copies import Copies, Done
from cometmq.replication.feed import FeedSettings, ReplicaFeed
from cometmq.replication.frames import HEAD, ReplicationError, Timing
from cometmq.store.config import StoreConfig
from cometmq.store.message_store import MessageStore

log = logging.getLogger("cometmq.replication")

MAX_CONNECTIONS: Final = 64
"""With this many slaves connected, another one is turned away."""
_TURN_BYTES: Final = 1024 * 1024
"""So much is sent to a slave before others get their turn."""
_UNREAD_BYTES: Final = 2 * 1024 * 1024
"""So much may wait for a slave that does not read."""
_WINDOW: Final = 4 * 1024 * 1024
"""So much of an old part of the log is read from the disk at once."""
_RECENT: Final = 64 * 1024 * 1024
"""The end of the log is in memory."""
_MOST_REASONS: Final = 1000


def timing_of(config: StoreConfig) -> Timing:
    return Timing(config.ha_send_heartbeat_interval / 1000, config.ha_housekeeping_interval / 1000)


def tick_s(timing: Timing) -> float:
    """How often to look whether a heartbeat is due."""
    return min(1.0, timing.heartbeat_s / 2, timing.silence_s / 2)


class ReplicaStatus(msgspec.Struct, rename="camel"):
    """A slave, as GET_BROKER_HA_STATUS shows it."""

    addr: str
    slave_ack_offset: int
    diff: int
    in_sync: bool
    transferred_byte_in_second: int
    transfer_from_where: int


class _Replica(asyncio.Protocol):
    """A connection of a slave."""

    def __init__(self, server: HaServer) -> None:
        self._server = server
        self._store = server.store
        self._is_paused = False
        self._fetching: asyncio.Task[None] | None = None
        self._in_memory_until = 0
        self._has_more = False
        self._transport: asyncio.Transport | None = None
        self.address = ""
        self.replica: object = self
        """What counts as one replica."""
        self._sent_before, self._checked = 0, 0.0
        self.rate = 0
        """How many bytes a second it was sent, lately."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        host, port, *_ = transport.get_extra_info("peername") or ("", 0)
        self.address = f"{host}:{port}"
        if host and not is_loopback(host):
            self.replica = host
        self._transport.set_write_buffer_limits(high=_UNREAD_BYTES)
        self.feed = ReplicaFeed(self._store.log, self._server.feed_settings(), self._server.now())
        self._server.joined(self)

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        if self._fetching is not None:
            self._fetching.cancel()
        self._server.left(self)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        before = self.feed.acked
        try:
            self.feed.received(data, self._server.now())
        except ReplicationError as error:
            self.close(error.message)
            return
        if self.feed.acked > before:
            self._server.acknowledged(self)
        self.pump()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.pump()

    def close(self, reason: str | None = None) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            if reason is not None:
                self._server.refused(self, reason)
            transport.abort()

    def check(self) -> None:
        """Give up a silent slave, and send heartbeats."""
        now = self._server.now()
        self.rate = int((self.feed.sent - self._sent_before) / max(now - self._checked, 0.001))
        self._sent_before, self._checked = self.feed.sent, now
        try:
            self.feed.check(now)
        except ReplicationError as error:
            self.close(error.message)
            return
        self.pump()

    def pump(self) -> None:
        """Send what there is, as long as the slave takes it."""
        budget, now = _TURN_BYTES, self._server.now()
        try:
            while self._transport is not None and not self._is_paused and not self._is_fetching():
                if budget <= 0:
                    self._go_on_soon()
                    return
                frame = self.feed.next_frame(now)
                if frame is None:
                    return
                head, body = frame
                if body:
                    self._transport.writelines((head, body))
                else:
                    self._transport.write(head)
                budget -= HEAD.size + len(body)
        except ReplicationError as error:
            self.close(error.message)

    def _go_on_soon(self) -> None:
        if not self._has_more:
            self._has_more = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._has_more = False
        self.pump()

    def _is_fetching(self) -> bool:
        """Whether the next bytes have to be read from the disk first; that is begun, then."""
        if self._fetching is not None:
            return True
        commit_log, offset = self._store.log, self.feed.sent
        if offset < self._in_memory_until or commit_log.max_offset - offset <= _RECENT:
            return False
        self._in_memory_until = offset + _WINDOW
        if not commit_log.on_disk([(offset, _WINDOW)]):
            return False
        self._fetching = asyncio.get_running_loop().create_task(self._store.fetch(offset, _WINDOW))
        self._fetching.add_done_callback(self._fetched)
        return True

    def _fetched(self, fetching: asyncio.Task[None]) -> None:
        self._fetching = None
        if not fetching.cancelled():
            if error := fetching.exception():
                self.close(f"the log could not be read for it: {error}")
            self.pump()


class HaServer:
    """The replicas of one master; belongs to the event loop."""

    def __init__(self, store: MessageStore, config: Callable[[], StoreConfig], host: str, port: int) -> None:
        self.store = store
        self._config = config
        self._host = host
        self.port = port
        """The port; with 0, the one that was free, known after `start`."""
        self.copies = Copies()
        self.connections: dict[_Replica, None] = {}
        self._turned_away = Rarely()
        self._refused = Rarely()
        self.reasons: dict[str, str] = {}
        """By host: the last logged reason why its connection was closed."""
        self._is_woken = False
        self._listener: asyncio.Server | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Listen; raises `CometError` if the port cannot be had."""
        self._loop = asyncio.get_running_loop()
        try:
            self._listener = await self._loop.create_server(lambda: _Replica(self), self._host, self.port)
        except OSError as error:
            raise CometError(
                f"cannot listen on {self._host}:{self.port} for replicas: {error.strerror or error}; "
                "stop what uses the port, or choose another haListenPort"
            ) from None
        self.port = self._listener.sockets[0].getsockname()[1]
        descriptor_shares.take_part(self)
        self._schedule()

    async def stop(self) -> None:
        """Let go of all slaves; who waits for copies is told that there are not enough."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for timer in (self._tick, self._expiry):
            if timer is not None:
                timer.cancel()
        for replica in list(self.connections):
            replica.close()
        self.copies.expire(float("inf"))

    def now(self) -> float:
        return self._loop.time()

    def feed_settings(self) -> FeedSettings:
        config = self._config()
        limit = config.max_ha_transfer_byte_in_second if config.ha_flow_control_enable else None
        return FeedSettings(timing_of(config), config.ha_transfer_batch_size, limit)

    # Slaves

    def joined(self, replica: _Replica) -> None:
        if not self._is_allowed(replica.address.rpartition(":")[0]):
            replica.close("its address is not among haAllowedReplicas")
            return
        if len(self.connections) >= MAX_CONNECTIONS or not descriptor_shares.has_room():
            if count := self._turned_away.count():
                log.warning(
                    "%s is turned away, and %d more were: %d peers are connected to the HA port already",
                    *(replica.address, count - 1, len(self.connections)),
                )
            replica.close()
            return
        if not self.connections:
            self.store.watch_appends(self._wake)
        self.connections[replica] = None

    def _is_allowed(self, host: str) -> bool:
        networks = self._config().allowed_replicas
        if not networks:
            return True
        try:
            address = ip_address(host.partition("%")[0])
        except ValueError:
            return False
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return any((mapped or address) in network for network in networks)

    def left(self, replica: _Replica) -> None:
        if replica in self.connections:
            del self.connections[replica]
            self.copies.lost(replica)
            if replica.feed.has_asked:
                log.info(
                    "slave %s has left; it acknowledged the log up to %d", replica.address, replica.feed.acked
                )
            if not self.connections:
                self.store.watch_appends(None)

    def refused(self, replica: _Replica, reason: str) -> None:
        """Log why a connection is closed: once per host and reason, and rarely, since peers choose it."""
        host = replica.address.rpartition(":")[0]
        if self.reasons.get(host) != reason and (count := self._refused.count()):
            log.warning(
                "the connection of slave %s is closed, and %d others were: %s",
                *(replica.address, count - 1, reason),
            )
            if len(self.reasons) >= _MOST_REASONS:
                self.reasons.clear()
            self.reasons[host] = reason

    def acknowledged(self, replica: _Replica) -> None:
        if replica not in self.copies.connections:
            log.info("slave %s follows, from offset %d on", replica.address, replica.feed.acked)
            self.reasons.pop(replica.address.rpartition(":")[0], None)
        self.copies.acknowledged(replica, replica.replica, replica.feed.acked)

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        self._is_woken = False
        for replica in list(self.connections):
            replica.pump()

    def _schedule(self) -> None:
        self._tick = self._loop.call_later(tick_s(timing_of(self._config())), self._check)

    def _check(self) -> None:
        self._schedule()
        for replica in list(self.connections):
            replica.check()

    # Copies

    @property
    def in_sync(self) -> int:
        """How many copies of the log there are that are nearly as long as the master's, with its own."""
        gap = self._config().ha_max_gap_not_in_sync
        return self.copies.count(self.store.log.max_offset - gap + 1)

    def when_copied(self, offset: int, need: int, done: Done) -> None:
        """Call back with True when there are so many copies up to an offset, with False after
        `slaveTimeout`."""
        self.copies.wait(offset, need, self._loop.time() + self._config().slave_timeout / 1000, done)
        self._watch_deadline()

    def _watch_deadline(self) -> None:
        deadline = self.copies.next_deadline
        if deadline is not None and (self._expiry is None or deadline < self._expiry.when()):
            if self._expiry is not None:
                self._expiry.cancel()
            self._expiry = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        self.copies.expire(self._loop.time())
        self._watch_deadline()

    def status(self) -> list[ReplicaStatus]:
        """The slaves that have said where they are."""
        end, gap = self.store.log.max_offset, self._config().ha_max_gap_not_in_sync
        return [
            ReplicaStatus(
                replica.address,
                replica.feed.acked,
                end - replica.feed.acked,
                replica.feed.acked >= 0 and end - replica.feed.acked < gap,
                replica.rate,
                replica.feed.sent,
            )
            for replica in list(self.connections)
            if replica.feed.has_asked
        ]
