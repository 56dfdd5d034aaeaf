"""The tables that a slave copies from its master: topics, groups, offsets, delay offsets, request modes.

Rules kept here:
- The log has only messages; everything else is asked for. Offsets are copied every few seconds, everything
  every minute, and at once when the master is found or when messages of an unknown topic have come.
- Tables are compared, and only differences are applied. Nothing is removed before the new table is here.
- The queues of a topic that the master had and has no longer are deleted.
- What cannot be copied is tried again, and does not keep the rest from being copied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from cometmq.broker.cluster.addresses import announced
from cometmq.broker.groups.assignment import RequestModes
from cometmq.broker.groups.groups import Groups
from cometmq.broker.groups.offsets import ConsumerOffsets
from cometmq.broker.ports import FAST_PORT_DISTANCE
from cometmq.broker.timers.delay_levels import DelayService
from cometmq.broker.topics.topics import Topics
from cometmq.model.errors import CometError
from cometmq.model.names import LIGHT_QUEUE_PREFIX
from cometmq.remoting.client import RemotingClient, split_address
from cometmq.store.message_store import MessageStore
from cometmq.store.tables.tables import (
    ConsumerOffsetTable,
    DelayOffsetTable,
    MessageRequestModeTable,
    SubscriptionGroupTable,
    TopicTable,
)
from cometmq.wire.bodies.json_body import decode_answer
from cometmq.wire.codes import RequestCode

log = logging.getLogger("cometmq.broker")

LOOK_S: Final = 3.0
"""How often to look whether something is due."""
OFFSETS_S: Final = 5.0
EVERYTHING_S: Final = 60.0
TIMEOUT_S: Final = 3.0

T = TypeVar("T", bound=msgspec.Struct)


@dataclass(eq=False, repr=False)
class TableCopies:
    """Copies the tables of one master; belongs to the event loop."""

    _address: str
    _remoting: RemotingClient
    _store: MessageStore
    _topics: Topics
    _groups: Groups
    _offsets: ConsumerOffsets
    _delays: DelayService
    _request_modes: RequestModes

    def __post_init__(self) -> None:
        self.master: str | None = None
        """The address of the master; None while there is none."""
        self.failures: dict[str, str] = {}
        """The tables that could not be copied, each with the reason."""
        self._masters_topics: set[str] = set()
        self._without_config: set[str] = set()
        self._offsets_due_s = self._everything_due_s = 0.0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def follow(self, master: str | None) -> None:
        """Copy from this master."""
        if master == self._address:
            master = None
        if master != self.master:
            log.info("the master is %s", master or "not registered")
            self.master = master
            self._everything_due_s = 0.0
            self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._copy_due()
            except Exception:
                log.exception("the tables of the master could not be copied; that is tried again")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), LOOK_S)

    async def _copy_due(self) -> None:
        master, now = self.master, asyncio.get_running_loop().time()
        if master is None:
            return
        if now >= self._everything_due_s or self._has_new_topics():
            if await self.copy_everything(master):
                self._everything_due_s = now + EVERYTHING_S
                self._offsets_due_s = now + OFFSETS_S
        elif now >= self._offsets_due_s:
            self._offsets_due_s = now + OFFSETS_S
            await self._copy_offsets(master)

    def _has_new_topics(self) -> bool:
        """Whether messages of topics have come that are not in the table."""
        queued = {name for name in self._store.queues.topics() if not name.startswith(LIGHT_QUEUE_PREFIX)}
        unknown = queued - self._topics.table.keys()
        is_new = bool(unknown - self._without_config)
        self._without_config = unknown
        return is_new

    async def copy_everything(self, master: str) -> bool:
        """Copy all tables; False if something could not be copied."""
        done = [
            await self._copy("topics", self._copy_topics, master),
            await self._copy_offsets(master),
            await self._copy("groups", self._copy_groups, master),
            await self._copy("request modes", self._copy_request_modes, master),
        ]
        return all(done)

    async def _copy_offsets(self, master: str) -> bool:
        done = [
            await self._copy("consumer offsets", self._copy_consumer_offsets, master),
            await self._copy("delay offsets", self._copy_delay_offsets, master),
        ]
        return all(done)

    async def _copy(self, what: str, copy: Callable[[str], Awaitable[None]], master: str) -> bool:
        try:
            await copy(master)
        except CometError as error:
            if self.failures.get(what) != error.message:
                log.warning("the %s of the master %s could not be copied: %s", what, master, error.message)
            self.failures[what] = error.message
            return False
        self.failures.pop(what, None)
        return True

    async def _ask(self, address: str, code: RequestCode, kind: type[T]) -> T:
        answer = await self._remoting.call_ok(address, code, timeout_s=TIMEOUT_S)
        return await asyncio.to_thread(decode_answer, kind, bytes(answer.body))

    async def _copy_topics(self, master: str) -> None:
        host, port = split_address(master)
        table = await self._ask(
            announced(host, port - FAST_PORT_DISTANCE), RequestCode.GET_ALL_TOPIC_CONFIG, TopicTable
        )
        names = set(table.topic_config_table)
        if not names:
            raise CometError("it has none, which no broker has; they are kept")
        self._topics.take_over(table)
        deleted = {name for name in self._masters_topics - names if self._topics.get(name) is None}
        self._masters_topics = names
        if deleted:
            log.info("%s were deleted on the master", ", ".join(sorted(deleted)))
            await self._store.delete_topics(deleted)

    async def _copy_groups(self, master: str) -> None:
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        self._groups.take_over(await self._ask(master, code, SubscriptionGroupTable))

    async def _copy_consumer_offsets(self, master: str) -> None:
        code = RequestCode.GET_ALL_CONSUMER_OFFSET
        self._offsets.take_over(await self._ask(master, code, ConsumerOffsetTable))

    async def _copy_delay_offsets(self, master: str) -> None:
        self._delays.take_over(await self._ask(master, RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsetTable))

    async def _copy_request_modes(self, master: str) -> None:
        code = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
        self._request_modes.take_over(await self._ask(master, code, MessageRequestModeTable))
