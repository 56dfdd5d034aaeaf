"""The HA client of a slave: follows the log of its master.

Rules kept here:
- The slave appends what its master sends, reports it, and dispatches it in the same turn: who waits for the
  copy does not wait for queues and index.
- It reports what it has written; with `flushDiskType=SYNC_FLUSH` only what is on its disk.
- A lost connection is made again, soon at first and then every 5 s. When the master's address changes, the
  old connection is closed.
- A record that cannot be read stops the dispatch, and is reported: what the master has sent is not changed.
- What cannot be appended closes the connection; the log goes on where it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, cast

from cometmq.model.errors import CometError, ConnectError
from cometmq.ports.clock import Clock
from cometmq.remoting.client import split_address
from cometmq.replication.follow import LogFollower
from cometmq.replication.frames import ReplicationError
from cometmq.replication.server import tick_s, timing_of
from cometmq.store.config import StoreConfig
from cometmq.store.message_store import MessageStore
from cometmq.store.status import PutStatus

log = logging.getLogger("cometmq.replication")

CONNECT_TIMEOUT_S: Final = 5.0
FIRST_RETRY_S: Final = 0.5
LAST_RETRY_S: Final = 5.0
_LARGEST_RECORD: Final = 16 * 1024 * 1024
"""No record is larger; one that is not complete yet is no trouble."""


class _Master(asyncio.Protocol):
    """The connection to a master; `ended` is done when it is closed."""

    def __init__(self, store: MessageStore, config: StoreConfig, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._waits_for_flush = config.flush_disk_type == "SYNC_FLUSH"
        self._awaits_flush = False
        self._timing = timing_of(config)
        self._transport: asyncio.Transport | None = None
        self._tick: asyncio.TimerHandle | None = None
        self.ended: asyncio.Future[str] = self._loop.create_future()
        """Why the connection was closed."""
        self.is_followed = False
        """Whether the master has sent something that fits."""
        self._received, self._received_before, self._checked = 0, 0, self._loop.time()
        self.read_ms = self.wrote_ms = clock.now_ms()
        self.rate = 0
        self._position, self._is_stuck = -1, False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        end = self._store.log.max_offset
        self._follower = LogFollower(end, self._store.log.file_size, self._timing, self._loop.time())
        self._transport.write(self._follower.report(end, self._loop.time()))
        self._schedule()

    def connection_lost(self, error: Exception | None) -> None:
        self.close(str(error) if error else "the master closed it")

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        self._received += len(data)
        self.read_ms = self._clock.now_ms()
        store = self._store
        try:
            for offset, body in self._follower.received(data, self._loop.time()):
                if not body:
                    store.log.begin_at(offset)
                    continue
                status = store.log.append_data(body)
                if status is not PutStatus.PUT_OK:
                    failure = store.log.allocation_failure
                    raise ReplicationError(
                        f"the log cannot be appended to: {failure.message if failure else status.value}; "
                        "make room on the slave's disk"
                    )
        except CometError as error:
            self.close(error.message)
        else:
            self.is_followed = True
            self._report()
        store.show_data()

    def _report(self) -> None:
        """Report what is safe, if that is due."""
        if self._transport is None:
            return
        store = self._store
        safe = store.log.max_offset
        if self._waits_for_flush:
            flushed = store.flusher.flushed_offset
            if flushed < safe and not self._awaits_flush:
                self._awaits_flush = True
                store.flusher.when_flushed(safe, self._flushed)
                flushed = store.flusher.flushed_offset
            safe = flushed
        if report := self._follower.report(safe, self._loop.time()):
            self._transport.write(report)
            self.wrote_ms = self._clock.now_ms()

    def _flushed(self, _: PutStatus) -> None:
        self._awaits_flush = False
        self._loop.call_soon(self._report)

    def _schedule(self) -> None:
        self._tick = self._loop.call_later(tick_s(self._timing), self._check)

    def _check(self) -> None:
        self._schedule()
        now = self._loop.time()
        self.rate = int((self._received - self._received_before) / max(now - self._checked, 0.001))
        self._received_before, self._checked = self._received, now
        try:
            self._follower.check(now)
        except ReplicationError as error:
            self.close(error.message)
            return
        self._report()
        self._tell_if_stuck()

    def _tell_if_stuck(self) -> None:
        """Log once that the log grows and its messages do not get into queues."""
        store = self._store
        position = store.files.dispatcher.position
        is_stuck = store.log.confirm_offset - position > _LARGEST_RECORD and position == self._position
        if is_stuck and not self._is_stuck:
            log.error(
                "the log of the master cannot be read from %d on: its messages are copied, and are in no "
                "queue; check it there with cometmq store verify",
                position,
            )
        self._is_stuck, self._position = is_stuck, position

    def close(self, reason: str) -> None:
        if self._tick is not None:
            self._tick.cancel()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        if not self.ended.done():
            self.ended.set_result(reason)


class HaClient:
    """Follows one master; belongs to the event loop."""

    def __init__(self, store: MessageStore, config: Callable[[], StoreConfig], clock: Clock) -> None:
        self._store = store
        self._config = config
        self._clock = clock
        self._address: str | None = None
        self._changed = asyncio.Event()
        self._master: _Master | None = None
        self._task: asyncio.Task[None] | None = None
        self._reason = ""
        self.compare: Callable[[], Awaitable[str | None]] | None = None
        """Says why the master's log is not the one that the slave has a part of; asked before connecting."""

    @property
    def address(self) -> str | None:
        """The HA address of the master."""
        return self._address

    @property
    def is_following(self) -> bool:
        """Whether the master is connected, and sends what fits."""
        return self._master is not None and self._master.is_followed

    @property
    def reason(self) -> str:
        """Why the slave does not follow; empty while it does."""
        if self.is_following:
            return ""
        return self._reason or (
            "connecting" if self._address else "the address of the master is not known yet"
        )

    @property
    def read_ms(self) -> int:
        """When the master was last heard of; 0 if it is not connected."""
        return 0 if self._master is None else self._master.read_ms

    @property
    def wrote_ms(self) -> int:
        """When it was last told something."""
        return 0 if self._master is None else self._master.wrote_ms

    @property
    def rate(self) -> int:
        """How many bytes a second have come, lately."""
        return 0 if self._master is None else self._master.rate

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._follow_for_ever())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def follow(self, address: str) -> None:
        """Follow the master at an HA address."""
        if address != self._address:
            self._address = address
            self._changed.set()
            if self._master is not None:
                self._master.close(f"the master is at {address} now")

    async def _follow_for_ever(self) -> None:
        retry_s = FIRST_RETRY_S
        while True:
            self._changed.clear()
            if self._address is None:
                await self._changed.wait()
                continue
            followed, reason = await self._follow(self._address)
            if followed:
                retry_s = FIRST_RETRY_S
            if reason != self._reason:
                log.warning(
                    "the log of the master %s is not followed, and that is tried again: %s",
                    self._address,
                    reason,
                )
                self._reason = reason
            try:
                await asyncio.wait_for(self._changed.wait(), retry_s)
            except TimeoutError:
                retry_s = min(retry_s * 2, LAST_RETRY_S)

    async def _follow(self, address: str) -> tuple[bool, str]:
        """Follow until the connection ends; returns whether the master sent what fits, and why it ended."""
        config, store = self._config(), self._store
        if self.compare is not None and (difference := await self.compare()):
            return False, difference
        if config.flush_disk_type == "SYNC_FLUSH":  # the first report counts as an acknowledgement, too
            await store.flusher.wait_flushed(store.log.max_offset)
        loop = asyncio.get_running_loop()
        try:
            connecting = loop.create_connection(
                lambda: _Master(store, config, self._clock), *split_address(address)
            )
            _, master = await asyncio.wait_for(connecting, CONNECT_TIMEOUT_S)
        except (OSError, ConnectError) as error:
            return False, f"no connection: {str(error) or 'timed out'}"
        self._master = master
        try:
            log.info("connected to the master %s; the own log ends at %d", address, store.log.max_offset)
            reason = await asyncio.shield(master.ended)
        finally:
            self._master = None
            master.close("the slave stops")
        return master.is_followed, reason
