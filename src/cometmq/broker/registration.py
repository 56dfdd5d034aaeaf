"""Announcing the broker to its name servers.

Rules kept here:
- Every name server is told, all at the same time, each on its own: at the start, every now and then, and as
  soon as a topic changes. Changes that come while a registration is under way share the next one.
- A change tells only the topics that changed; a deletion, and everything regular, tells all of them. Unless
  it is forced, the regular registration asks first whether the name server knows them already.
- A name server that cannot be reached is tried again soon, and never holds up the others for long.
- A clean stop takes the broker out of the routes.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.model.errors import CometError, HeaderError
from cometmq.model.topic import PERM_READ, PERM_WRITE, TopicConfig
from cometmq.wire.bodies.json_body import decode_answer
from cometmq.wire.bodies.registration import encode_registration
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.namesrv import (
    QueryDataVersionRequest,
    QueryDataVersionResponse,
    RegisterBrokerRequest,
    UnRegisterBrokerRequest,
)

if TYPE_CHECKING:
    from cometmq.broker.state import BrokerState

log = logging.getLogger("cometmq.broker")

RETRY_S: Final = 5.0
"""How soon a name server that could not be reached is tried again."""
UNREGISTER_TIMEOUT_S: Final = 3.0
_READ_WRITE: Final = PERM_READ | PERM_WRITE


class _KVTable(msgspec.Struct):
    table: dict[str, str] | None = None


class Registration:
    """Tells name servers about one broker; belongs to the event loop."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._changed: dict[str, TopicConfig] = {}
        self._everything = False
        self._task: asyncio.Task[None] | None = None
        self._regular: asyncio.TimerHandle | None = None
        self._is_running = False
        self._unreachable: set[str] = set()
        self.registered: frozenset[str] = frozenset()
        """The name servers that took the last registration."""
        state.topics.on_change.append(self._topics_changed)

    def start(self) -> None:
        """Register at once, and then every now and then."""
        self._is_running = True
        self._schedule()
        self.register()

    async def stop(self) -> None:
        """Take the broker out of the routes."""
        if not self._is_running:
            return
        self._is_running = False
        if self._regular is not None:
            self._regular.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await asyncio.gather(*(self._unregister(each) for each in self._state.config.namesrv_addresses))

    def register(self) -> None:
        """Tell everything, soon."""
        self._everything = True
        self._begin()

    async def settled(self, timeout_s: float) -> None:
        """Return when the name servers were told everything so far, or when that takes too long."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout_s)

    # When

    def _schedule(self) -> None:
        """Register again in a while; soon if somebody could not be reached."""
        if self._regular is not None:
            self._regular.cancel()
        delay_s = RETRY_S if self._unreachable else self._state.config.register_period_s
        self._regular = asyncio.get_running_loop().call_later(delay_s, self._regularly)

    def _regularly(self) -> None:
        self._schedule()
        self.register()

    def _topics_changed(self, topics: list[TopicConfig]) -> None:
        if topics:
            self._changed.update((topic.topic_name, topic) for topic in topics)
        else:
            self._everything = True
        self._begin()

    def _begin(self) -> None:
        if self._is_running and self._task is None and self._state.config.namesrv_addresses:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._everything or self._changed:
                changed, everything = list(self._changed.values()), self._everything
                self._changed, self._everything = {}, False
                addresses = self._state.config.namesrv_addresses
                await asyncio.gather(
                    *(self._tell(address, None if everything else changed) for address in addresses)
                )
        finally:
            self._task = None
        if self._unreachable:
            self._schedule()

    # What

    async def _tell(self, address: str, changed: Sequence[TopicConfig] | None) -> None:
        """Tell one name server some topics, or all."""
        try:
            if changed is not None:
                await self._register(address, changed)
            elif self._state.config.force_register or await self._is_news(address):
                topics = list(self._state.topics.table.values())
                size = len(topics)
                if self._state.config.enable_split_registration:
                    size = max(self._state.config.split_registration_size, 1)
                for start in range(0, len(topics), size):
                    await self._register(address, topics[start : start + size])
        except CometError as error:
            if address not in self._unreachable:
                log.warning("registering with %s failed, and is tried again: %s", address, error.message)
            self._unreachable.add(address)
            self.registered -= {address}
            return
        self.registered |= {address}
        if address in self._unreachable:
            self._unreachable.discard(address)
            log.info("registered with %s", address)

    async def _register(self, address: str, topics: Sequence[TopicConfig]) -> None:
        state, config = self._state, self._state.config
        if config.broker_permission & _READ_WRITE != _READ_WRITE:
            topics = [
                msgspec.structs.replace(topic, perm=topic.perm & config.broker_permission) for topic in topics
            ]
        body = encode_registration(topics, state.topics.data_version)
        acting = config.enable_slave_acting_master
        answer = await state.remoting.call_ok(
            address,
            RequestCode.REGISTER_BROKER,
            RegisterBrokerRequest(
                broker_name=config.broker_name,
                broker_addr=state.address,
                cluster_name=config.broker_cluster_name,
                ha_server_addr=state.ha_address,
                broker_id=config.broker_id,
                heartbeat_timeout_millis=config.broker_not_active_timeout_millis if acting else None,
                enable_acting_master=acting,
                body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
            ),
            body=body,
            timeout_s=config.register_broker_timeout_mills / 1000,
        )
        if answer.body:
            self._take_order_topics(bytes(answer.body))

    def _take_order_topics(self, body: bytes) -> None:
        try:
            table = decode_answer(_KVTable, body).table
        except HeaderError as error:
            log.warning("the order topics of a name server cannot be read: %s", error.message)
            return
        if table is not None:
            self._state.topics.apply_order_topics(table)

    async def _is_news(self, address: str) -> bool:
        """Whether a name server does not know the topics as they are."""
        state, config = self._state, self._state.config
        answer = await state.remoting.call_ok(
            address,
            RequestCode.QUERY_DATA_VERSION,
            QueryDataVersionRequest(
                broker_name=config.broker_name,
                broker_addr=state.address,
                cluster_name=config.broker_cluster_name,
                broker_id=config.broker_id,
            ),
            body=msgspec.json.encode(state.topics.data_version),
        )
        return answer.header(QueryDataVersionResponse).changed

    async def _unregister(self, address: str) -> None:
        state, config = self._state, self._state.config
        try:
            await state.remoting.call_ok(
                address,
                RequestCode.UNREGISTER_BROKER,
                UnRegisterBrokerRequest(
                    broker_name=config.broker_name,
                    broker_addr=state.address,
                    cluster_name=config.broker_cluster_name,
                    broker_id=config.broker_id,
                ),
                timeout_s=UNREGISTER_TIMEOUT_S,
            )
        except CometError as error:
            log.warning("unregistering from %s failed: %s", address, error.message)
