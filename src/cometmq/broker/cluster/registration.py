"""Registration of the broker with its name servers, and heartbeats between the registrations.

Rules kept here:
- Every name server is told, all at the same time, each on its own: at the start, periodically, and as soon as
  a topic changes. Changes that come during a registration share the next one.
- A change tells only the changed topics; a deletion, and every periodic registration, tells all of them.
  Unless `forceRegister` is set, the periodic registration asks first whether the name server knows them
  already.
- With `enableSingleTopicRegister` a changed topic is told by itself, which is the only way for name servers
  that take every registration as all that the broker has (`deleteTopicWithBrokerRegistration`).
- A name server that cannot be reached is tried again soon, and never holds up the others for long. `failures`
  has the reasons, so that a start can show them.
- For `disappearTimeAfterStart` after its start a broker tells nobody of itself. Apache's broker registers at
  its start all the same, and holds back what follows.
- A slave is told where its master is with every registration; as long as there is none, it asks every second.
- A clean stop takes the broker out of the routes.
- With `enableSlaveActingMaster` name servers drop a broker that is silent for `brokerNotActiveTimeoutMillis`,
  which is less than the registration period; so every `brokerHeartbeatInterval` each gets a heartbeat. It is
  a query of the data version, which name servers before 5.0 understand, too; with
  `compatibleWithOldNameSrv=false` it is BROKER_HEARTBEAT, which nobody answers. A name server that does not
  know the broker is told everything at once. A failed heartbeat is not repeated: the next one follows.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cometmq.broker.cluster.name_servers import NameServers
from cometmq.broker.settings import Settings
from cometmq.broker.topics.topics import Topics
from cometmq.model.errors import CometError, ConnectionLostError, HeaderError
from cometmq.model.route import QueueData
from cometmq.model.topic import PERM_READ, PERM_WRITE, TopicConfig
from cometmq.remoting.client import CALL_TIMEOUT_S, RemotingClient
from cometmq.wire.bodies.json_body import decode_answer
from cometmq.wire.bodies.registration import encode_compressed_registration, encode_registration
from cometmq.wire.bodies.route import encode_topic_queues
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.namesrv import (
    BrokerHeartbeatRequest,
    QueryDataVersionRequest,
    QueryDataVersionResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RegisterTopicRequest,
    UnRegisterBrokerRequest,
)

log = logging.getLogger("cometmq.broker")

RETRY_S: Final = 5.0
"""How soon a name server that could not be reached is tried again."""
UNREGISTER_TIMEOUT_S: Final = 3.0
MAX_SINGLE_REGISTRATIONS: Final = 50
"""When more topics than this have changed, telling all of them is less work."""
NO_MASTER_S: Final = 1.0
"""How soon a slave without a master asks again."""
_UNKNOWN: Final = (None, None)
_READ_WRITE: Final = PERM_READ | PERM_WRITE


@dataclass(eq=False, repr=False)
class BrokerHeartbeats:
    """Sends heartbeats of one broker; belongs to the event loop."""

    _settings: Settings
    _address: str
    _remoting: RemotingClient
    _topics: Topics
    _name_servers: NameServers
    _register: Callable[[], None]

    def __post_init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._under_way: dict[str, asyncio.Task[None]] = {}
        """By address; there is at most one to each name server."""

    @property
    def identity(self) -> dict[str, Any]:
        """The fields by which name servers know this broker."""
        config = self._settings.broker
        return {
            "broker_name": config.broker_name,
            "broker_addr": self._address,
            "cluster_name": config.broker_cluster_name,
            "broker_id": config.broker_id,
        }

    def start(self) -> None:
        """Send from now on, if the settings ask for it; called again when they have changed."""
        if self._timer is None and self._settings.broker.enable_slave_acting_master:
            self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in self._under_way.values():
            task.cancel()

    def _schedule(self) -> None:
        delay_s = self._settings.broker.broker_heartbeat_interval / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._beat)

    def _beat(self) -> None:
        self._timer = None
        config = self._settings.broker
        if not config.enable_slave_acting_master:
            return
        self._schedule()
        for address in self._name_servers.addresses:
            if address not in self._under_way:  # one that is slow gets the next one when it has answered
                self._under_way[address] = asyncio.get_running_loop().create_task(self._send_one(address))

    async def _send_one(self, address: str) -> None:
        try:
            await self._send(address)
        finally:
            del self._under_way[address]

    async def _send(self, address: str) -> None:
        config = self._settings.broker
        timeout_s = config.send_heartbeat_timeout_millis / 1000
        try:
            if not config.compatible_with_old_name_srv:
                heartbeat, code = BrokerHeartbeatRequest(**self.identity), RequestCode.BROKER_HEARTBEAT
                await self._remoting.oneway(address, code, heartbeat, timeout_s=timeout_s)
                return
            answer = await self.query_data_version(address, timeout_s)
        except CometError:
            return
        if not answer.body:
            self._register()

    async def query_data_version(self, address: str, timeout_s: float = CALL_TIMEOUT_S) -> Command:
        """Ask a name server whether it knows the topics as they are; it learns that this broker lives."""
        header = QueryDataVersionRequest(**self.identity)
        body = msgspec.json.encode(self._topics.data_version)
        code = RequestCode.QUERY_DATA_VERSION
        return await self._remoting.call_ok(address, code, header, body=body, timeout_s=timeout_s)


class _KVTable(msgspec.Struct):
    table: dict[str, str] | None = None


class Registration:
    """Tells name servers about one broker; belongs to the event loop."""

    def __init__(
        self,
        settings: Settings,
        address: str,
        ha_address: str,
        remoting: RemotingClient,
        topics: Topics,
        name_servers: NameServers,
    ) -> None:
        self._settings = settings
        self.name_servers = name_servers
        self._topics = topics
        self._remoting = remoting
        self._ha_address = ha_address
        self._changed: dict[str, TopicConfig] = {}
        self._everything = False
        self._task: asyncio.Task[None] | None = None
        self._regular: asyncio.TimerHandle | None = None
        self._is_running = False
        self._heartbeats = BrokerHeartbeats(settings, address, remoting, topics, name_servers, self.register)
        self._announced = self._heartbeat_settings
        self.failures: dict[str, str] = {}
        """The name servers that did not take the last registration, each with the reason."""
        self.registered: frozenset[str] = frozenset()
        """The name servers that took the last registration."""
        self.on_registered: list[Callable[[], None]] = []
        """Called once, as soon as one of the name servers knows this broker."""
        self.on_master: Callable[[str | None, str | None], None] | None = None
        """Called on a slave with the address and the HA address of its master; each is None if unknown."""
        self._masters: dict[str, tuple[str | None, str | None]] = {}
        """By name server: the addresses of the master."""
        topics.on_change.append(self._topics_changed)
        settings.on_change.append(self._settings_changed)
        name_servers.on_change.append(self.register)

    def start(self) -> None:
        """Register at once, or as soon as the settings allow, and then every now and then."""
        hidden_s = self._settings.hidden_s
        if hidden_s:
            log.warning("the broker registers in %.0f s (disappearTimeAfterStart)", hidden_s)
            self._regular = asyncio.get_running_loop().call_later(hidden_s, self._appear)
        else:
            self._appear()

    def _appear(self) -> None:
        self._is_running = True
        self._schedule()
        self.register()
        self._heartbeats.start()

    async def stop(self) -> None:
        """Take the broker out of the routes."""
        if self._regular is not None:
            self._regular.cancel()
        if not self._is_running:
            return
        self._is_running = False
        self._heartbeats.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await asyncio.gather(*(self._unregister(each) for each in self.name_servers.addresses))

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
        delay_s = RETRY_S if self.failures else self._settings.broker.register_period_s
        if self._settings.is_slave and not any(address for address, _ in self._masters.values()):
            delay_s = NO_MASTER_S
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

    @property
    def _heartbeat_settings(self) -> tuple[bool, int]:
        config = self._settings.broker
        return config.enable_slave_acting_master, config.broker_not_active_timeout_millis

    def _settings_changed(self) -> None:
        """Name servers have to know how long they may hear nothing before the heartbeats change."""
        if self._announced != self._heartbeat_settings:
            self._announced = self._heartbeat_settings
            self._topics.touch()
            if self._is_running:
                self._heartbeats.start()

    def _begin(self) -> None:
        if self._is_running and self._task is None and self.name_servers.addresses:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._everything or self._changed:
                changed, everything = list(self._changed.values()), self._everything
                self._changed, self._everything = {}, False
                addresses = self.name_servers.addresses
                self._forget_others(addresses)
                await asyncio.gather(
                    *(self._tell(address, None if everything else changed) for address in addresses)
                )
        finally:
            self._task = None
        if self._settings.is_slave:
            self._tell_master()
        if self.failures or self._settings.is_slave:
            self._schedule()

    def _tell_master(self) -> None:
        """Pass on what the first name server said that knows a master."""
        if self.on_master is not None:
            told = [self._masters.get(address, _UNKNOWN) for address in self.name_servers.addresses]
            self.on_master(*next((master for master in told if master[0] or master[1]), _UNKNOWN))

    def _forget_others(self, addresses: Sequence[str]) -> None:
        """Name servers that are no longer among the settings are neither known nor missed."""
        self.registered &= set(addresses)
        for address in self.failures.keys() - set(addresses):
            del self.failures[address]
        for address in self._masters.keys() - set(addresses):
            del self._masters[address]

    # What

    async def _tell(self, address: str, changed: Sequence[TopicConfig] | None) -> None:
        """Tell one name server some topics, or all."""
        config = self._settings.broker
        try:
            if changed is None:
                is_asking = config.force_register or self._settings.is_slave
                if is_asking or await self._is_news(address):
                    await self._register_all(address)
            elif not config.enable_single_topic_register:
                await self._register(address, changed)
            elif address in self.registered and len(changed) <= MAX_SINGLE_REGISTRATIONS:
                await asyncio.gather(*(self._register_topic(address, topic) for topic in changed))
            else:
                await self._register_all(address)
        except CometError as error:
            self._failed(address, error)
            return
        self.registered |= {address}
        if self.failures.pop(address, None) is not None:
            log.info("registered with %s", address)
        listeners, self.on_registered = self.on_registered, []
        for listener in listeners:
            listener()

    def _failed(self, address: str, error: CometError) -> None:
        reason = error.message
        if isinstance(error, ConnectionLostError) and not self._remoting.uses_tls:
            reason += "; if that name server takes TLS only, set useTLS = true"
        if self.failures.get(address) != reason:
            log.warning("registering with %s failed, and is tried again: %s", address, reason)
        self.failures[address] = reason
        self.registered -= {address}
        self._masters.pop(address, None)

    async def _register_all(self, address: str) -> None:
        config = self._settings.broker
        topics = list(self._topics.table.values())
        size = len(topics)
        if config.enable_split_registration:
            size = max(config.split_registration_size, 1)
        for start in range(0, len(topics), size):
            await self._register(address, topics[start : start + size])

    def _announced_topics(self, topics: Sequence[TopicConfig]) -> Sequence[TopicConfig]:
        """The topics with what the broker allows of their permissions."""
        allowed = self._settings.broker.broker_permission
        if allowed & _READ_WRITE == _READ_WRITE:
            return topics
        return [msgspec.structs.replace(topic, perm=topic.perm & allowed) for topic in topics]

    async def _register_topic(self, address: str, topic: TopicConfig) -> None:
        """Tell one topic by itself."""
        (topic,) = self._announced_topics([topic])
        name = self._settings.broker.broker_name
        queues = QueueData(
            name, topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_sys_flag
        )
        await self._remoting.call_ok(
            address,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV,
            RegisterTopicRequest(topic=topic.topic_name),
            body=encode_topic_queues(queues),
        )

    async def _register(self, address: str, topics: Sequence[TopicConfig]) -> None:
        config = self._settings.broker
        compressed = config.compressed_register
        encode = encode_compressed_registration if compressed else encode_registration
        body = encode(self._announced_topics(topics), self._topics.data_version)
        acting = config.enable_slave_acting_master
        answer = await self._remoting.call_ok(
            address,
            RequestCode.REGISTER_BROKER,
            RegisterBrokerRequest(
                **self._heartbeats.identity,
                ha_server_addr=self._ha_address,
                heartbeat_timeout_millis=config.broker_not_active_timeout_millis if acting else None,
                enable_acting_master=acting,
                compressed=compressed,
                body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
            ),
            body=body,
            timeout_s=config.register_broker_timeout_mills / 1000,
        )
        if self._settings.is_slave:
            master = answer.header(RegisterBrokerResponse)
            self._masters[address] = master.master_addr, master.ha_server_addr
        if answer.body:
            self._take_order_topics(bytes(answer.body))

    def _take_order_topics(self, body: bytes) -> None:
        try:
            table = decode_answer(_KVTable, body).table
        except HeaderError as error:
            log.warning("the order topics of a name server cannot be read: %s", error.message)
            return
        if table is not None:
            self._topics.apply_order_topics(table)

    async def _is_news(self, address: str) -> bool:
        """Whether a name server does not know the topics as they are."""
        answer = await self._heartbeats.query_data_version(address)
        return answer.header(QueryDataVersionResponse).changed

    async def _unregister(self, address: str) -> None:
        header, code = UnRegisterBrokerRequest(**self._heartbeats.identity), RequestCode.UNREGISTER_BROKER
        try:
            await self._remoting.call_ok(address, code, header, timeout_s=UNREGISTER_TIMEOUT_S)
        except CometError as error:
            log.warning("unregistering from %s failed: %s", address, error.message)
