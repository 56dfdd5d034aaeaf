"""A client instance: connections, routes, heartbeats and timers that clients with one client id share.

Rules kept here:
- There is one instance per client id and event loop, with one connection to each address and one heartbeat
  for all its groups. It starts with its first member and stops with the last.
- A group has at most one producer and one consumer in an instance; a second one is refused.
- A client serves the process that made it. A forked child is told to make its own; the check costs no system
  call, because every send makes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Final, cast
from weakref import WeakKeyDictionary

from cometmq.client.instance.broker_requests import BrokerRequests
from cometmq.client.instance.heartbeat import Heartbeats
from cometmq.client.instance.identity import MessageIds, client_id
from cometmq.client.instance.members import ConsumerMember, GroupMember, MemberKind, TransactionMember
from cometmq.client.instance.name_servers import NameServers
from cometmq.client.instance.routes import Routes
from cometmq.client.instance.signing import RequestSigner
from cometmq.client.instance.troubles import Troubles
from cometmq.client.producer.request_reply import PendingReplies
from cometmq.client.settings import ClientSettings, common_settings, name_server_source
from cometmq.model.errors import CometError, GroupTakenError, SettingsError, StateError
from cometmq.ports.clock import Clock, SystemClock
from cometmq.ports.system import after_fork_in_child
from cometmq.remoting.client import RemotingClient
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import HandlerTable
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.session import UnregisterClientRequest

log = logging.getLogger("cometmq.client")

_FORKED: Final = (
    "this client was made before the process forked and cannot be used in the child; "
    "make a new one in the child"
)


_FIRST_LOOK_UP_S: Final = 10.0
_LOOK_UP_S: Final = 120.0
"""How often name servers are looked up, where they are not listed."""
_FIRST_HEARTBEAT_S: Final = 1.0
_HURRY_PERIOD_S: Final = 1.0


class ForkGuard:
    """Ties a client to the process that made it."""

    __slots__ = ("_forks",)
    forks: ClassVar = 0
    """The number of forks on the way to this process."""

    def __init__(self) -> None:
        self._forks = ForkGuard.forks

    def check(self) -> None:
        """Raise in a forked child."""
        if self._forks != ForkGuard.forks:
            raise StateError(_FORKED)

    @classmethod
    def forked(cls) -> None:
        cls.forks += 1


after_fork_in_child(ForkGuard.forked)


class ClientConnections(RemotingClient):
    """A `RemotingClient` that reports new connections."""

    def __init__(self, connected: Callable[[str], None], **options: Any) -> None:
        super().__init__(**options)
        self._tell = connected

    def opened(self, connection: Connection) -> str | None:
        refusal = super().opened(connection)
        if refusal is None:
            self._tell(connection.remote_address)
        return refusal


class ClientInstance:
    """Connections, routes, heartbeats and timers of one client id."""

    def __init__(self, id_: str, settings: ClientSettings, *, clock: Clock | None = None) -> None:
        self.client_id = id_
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.fork_guard = ForkGuard()
        self._members: dict[tuple[MemberKind, str], GroupMember] = {}
        self.replies = PendingReplies()
        handlers = HandlerTable()
        handlers.add_handlers(
            BrokerRequests(self.consumer, self.transaction_producer, self.replies, self.clock)
        )
        hooks = []
        if settings.access_key is not None and settings.secret_key is not None:
            hooks.append(RequestSigner(settings.access_key, settings.secret_key, settings.security_token))
        self.remoting = ClientConnections(
            self._connected,
            handlers=handlers,
            call_hooks=hooks,
            tls=settings.tls,
            serialize_type=settings.serialize_type,
        )
        self.remoting.on_closed.append(lambda gone: self.heartbeats.connection_lost(gone.remote_address))
        self.troubles = Troubles()
        self.name_servers = NameServers(name_server_source(settings), self.remoting, self.troubles)
        self.routes = Routes(self.name_servers, self._route_changed, timeout_s=settings.call_timeout_s)
        self.heartbeats = Heartbeats(
            id_,
            self.remoting,
            self.routes,
            self._members.values,
            settings.use_heartbeat_v2,
            settings.call_timeout_s,
        )
        self.message_ids = MessageIds(settings.client_ip, self.clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = False
        self._hurried_at = -_HURRY_PERIOD_S
        self._hurry: asyncio.Task[None] | None = None

    # Lifecycle.

    async def start(self) -> None:
        """Start refreshing routes and sending heartbeats; a second call does nothing."""
        if not self.name_servers.addresses:
            await self.name_servers.look_up()
        if not self._running:
            self._running = True
            settings = self.settings
            poll_s = settings.poll_name_server_interval_ms / 1000
            heartbeat_s = settings.heartbeat_broker_interval_ms / 1000
            self.spawn(self._repeat(self.refresh_routes, poll_s, poll_s))
            first_s = min(_FIRST_HEARTBEAT_S, heartbeat_s)
            self.spawn(self._repeat(self.heartbeats.send_to_all, first_s, heartbeat_s))
            if not self.name_servers.source.is_fixed:
                self.spawn(self._repeat(self.name_servers.look_up, _FIRST_LOOK_UP_S, _LOOK_UP_S))

    async def stop(self) -> None:
        """Stop all timers and close all connections."""
        self._running = False
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.routes.stop()
        await self.remoting.stop()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task until it ends or the instance stops."""
        task = self.remoting.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _repeat(self, work: Callable[[], Coroutine[Any, Any, None]], first_s: float, s: float) -> None:
        await asyncio.sleep(first_s)
        while True:
            try:
                await work()
            except CometError as error:
                log.warning("%s: %s", work.__name__, error)
            except Exception:
                log.exception("%s failed", work.__name__)
            await asyncio.sleep(s)

    # Members.

    def add_member(self, member: GroupMember) -> None:
        """Add a member; its group must not have one of the same kind here."""
        key = (member.kind, member.group)
        if self._members.setdefault(key, member) is not member:
            raise GroupTakenError(
                f"client {self.client_id} has a {member.kind} of group {member.group} already; "
                "use that one, or give the other an instance_name of its own"
            )

    async def remove_member(self, member: GroupMember) -> None:
        """Remove a member, unregister it from the brokers, and stop with the last one."""
        key = (member.kind, member.group)
        if self._members.get(key) is not member:
            return
        del self._members[key]
        if not self._members:
            _forget(self)
        await self._unregister(member)
        if not self._members:
            await self.stop()

    def consumer(self, group: str) -> ConsumerMember | None:
        """The consumer of a group, if it is here."""
        return cast(ConsumerMember | None, self._members.get(("consumer", group)))

    def transaction_producer(self, group: str) -> TransactionMember | None:
        """The transactional producer of a group, if it is here."""
        member = self._members.get(("producer", group))
        return member if isinstance(member, TransactionMember) else None

    async def _unregister(self, member: GroupMember) -> None:
        header = UnregisterClientRequest(client_id=self.client_id)
        if member.kind == "producer":
            header.producer_group = member.group
        else:
            header.consumer_group = member.group
        connected = {connection.remote_address for connection in self.remoting.connections}
        # A broker without a connection has forgotten this client already.
        wanted = [
            address
            for addresses in self.routes.broker_addresses().values()
            for address in addresses.values()
            if address in connected
        ]
        await asyncio.gather(*(self._unregister_at(address, header) for address in wanted))

    async def _unregister_at(self, address: str, header: UnregisterClientRequest) -> None:
        code, timeout_s = RequestCode.UNREGISTER_CLIENT, self.settings.call_timeout_s
        try:
            await self.remoting.call_ok(address, code, header, timeout_s=timeout_s)
        except CometError as error:
            log.info("%s was not told that the client leaves: %s", address, error)

    # Routes and connections.

    async def refresh_routes(self) -> None:
        """Refresh the routes of all topics in use; forget the others."""
        used = {topic for member in list(self._members.values()) for topic in member.topics()}
        self.routes.forget_topics(used)
        for topic in used:
            try:
                await self.routes.refresh(topic)
            except CometError as error:
                self.troubles.met("routes", f"routes are not refreshed: {error}")
                return  # the others would fail alike
        if self.troubles:
            self.troubles.over("routes", "routes are refreshed again")

    def refresh_soon(self) -> None:
        """Refresh routes ahead of time, because something did not respond; at most once a second."""
        now = self.remoting.loop.time()
        busy = self._hurry is not None and not self._hurry.done()
        if self._running and not busy and now - self._hurried_at >= _HURRY_PERIOD_S:
            self._hurried_at = now
            self._hurry = self.spawn(self.refresh_routes())

    def _route_changed(self, topic: str) -> None:
        for member in list(self._members.values()):
            member.route_changed(topic)

    def _connected(self, address: str) -> None:
        """Send a heartbeat to a broker that is new or came back."""
        if self._running and self.routes.has_broker_at(address):
            self.spawn(self.heartbeats.send_to(address))
            for kind, group in list(self._members):
                consumer = self.consumer(group) if kind == "consumer" else None
                if consumer is not None:
                    consumer.consumer_ids_changed()


# By event loop. A loop that is gone takes its instances with it.
_instances: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, ClientInstance]] = WeakKeyDictionary()


async def join_instance(
    settings: ClientSettings,
    member: GroupMember,
    *,
    keep_instance_name: bool = False,
    clock: Clock | None = None,
) -> ClientInstance:
    """Add a member to the instance of its client id, which is created and started for the first member."""
    common = common_settings(settings)
    id_ = client_id(common, keep_instance_name=keep_instance_name)
    here = _instances.setdefault(asyncio.get_running_loop(), {})
    instance = here.get(id_)
    if instance is None:
        instance = ClientInstance(id_, common, clock=clock)
    elif instance.settings != common:
        raise SettingsError(
            f"client {id_} runs with other settings; use the same ones, or another instance_name"
        )
    instance.add_member(member)
    here[id_] = instance
    await instance.start()
    return instance


def _forget(instance: ClientInstance) -> None:
    here = _instances.get(instance.remoting.loop, {})
    if here.get(instance.client_id) is instance:
        del here[instance.client_id]
