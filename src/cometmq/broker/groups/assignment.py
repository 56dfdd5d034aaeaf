"""Queue assignment by the broker (`QUERY_ASSIGNMENT`), and whether a group pulls or pops a topic.

Rules kept here:
- Queues and clients are sorted as every client sorts them, so that all brokers return the same assignment.
- A group that pops shares its queues: every member reads all of them (queue -1 of each broker), or its own
  and those of some members after it.
- Where a topic, its route or the members of its group are not known, the client keeps what it has; an empty
  assignment takes everything away.
- Routes come from the name servers and are fetched again after `loadBalancePollNameServerInterval`. While
  none answers, the last route counts; without one, the topic as this broker has it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from cometmq.broker.cluster.name_servers import NameServers
from cometmq.broker.groups.online import Clients
from cometmq.broker.saved_tables import TableFiles
from cometmq.broker.settings import Settings
from cometmq.broker.topics.topics import Topics
from cometmq.model.allocation import AVERAGELY, BY_CIRCLE, averagely, by_circle
from cometmq.model.errors import CometError
from cometmq.model.names import RETRY_PREFIX
from cometmq.model.queue import MessageQueue
from cometmq.model.route import TopicRoute
from cometmq.model.topic import MAX_QUEUES, PERM_READ
from cometmq.ports.clock import Clock
from cometmq.remoting.client import RemotingClient
from cometmq.store.tables.tables import MessageRequestMode, MessageRequestModeTable
from cometmq.wire.bodies.assignment import QueryAssignmentRequest
from cometmq.wire.bodies.heartbeat import MessageModel
from cometmq.wire.bodies.json_body import decode_answer
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.namesrv import GetRouteInfoRequest

log = logging.getLogger("cometmq.broker")

PULL: Final = "PULL"
POP: Final = "POP"
ROUTE_TIMEOUT_S: Final = 3.0
MAX_ROUTES: Final = 10_000
"""With this many remembered, all are forgotten."""
Queues = list[MessageQueue]


class RequestModes:
    """Modes by topic and group; belongs to the event loop."""

    def __init__(self, settings: Settings, files: TableFiles) -> None:
        self._settings = settings
        self.table: dict[str, dict[str, MessageRequestMode]] = {}
        self._file = files.table(MessageRequestModeTable, self.snapshot)

    def load(self) -> None:
        """Take over what was saved; blocks."""
        saved = self._file.file.load()
        if saved is not None:
            self.table.update(saved.message_request_mode_map)

    def take_over(self, copied: MessageRequestModeTable) -> None:
        """Have the modes of the master."""
        if copied.message_request_mode_map != self.table:
            self.table = copied.message_request_mode_map
            self._file.changed()

    def snapshot(self) -> MessageRequestModeTable:
        return MessageRequestModeTable({topic: dict(groups) for topic, groups in self.table.items()})

    async def set(self, mode: MessageRequestMode) -> None:
        """Set a mode, and return when it is on the disk."""
        self.table.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self._file.changed()
        await self._file.saved()

    def get(self, topic: str, group: str) -> MessageRequestMode:
        """The mode of a group; what a broker's settings say where nobody set one. Retries are pulled."""
        found = self.table.get(topic, {}).get(group)
        if found is not None:
            return found
        config = self._settings.broker
        if topic.startswith(RETRY_PREFIX) or config.default_message_request_mode == PULL:
            return MessageRequestMode(topic, group, PULL)
        return MessageRequestMode(topic, group, POP, config.default_pop_share_queue_num)


class Assignment:
    """Assigns queues; belongs to the event loop."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        remoting: RemotingClient,
        topics: Topics,
        clients: Clients,
        name_servers: NameServers,
    ) -> None:
        self._settings = settings
        self._name_servers = name_servers
        self._clients = clients
        self._clock = clock
        self._remoting = remoting
        self._topics = topics
        self._queues: dict[str, tuple[int, Queues | None]] = {}
        """By topic: when it was asked for, and its queues; None if there is no such topic."""
        self._asking: dict[str, asyncio.Future[Queues | None]] = {}

    async def assign(self, request: QueryAssignmentRequest, mode: MessageRequestMode) -> Queues | None:
        """The queues of a client; None if it is to keep what it has."""
        queues = await self._queues_of(request.topic)
        if not queues:
            return None
        if request.message_model is MessageModel.BROADCASTING:
            return queues
        if not self._settings.broker.server_load_balancer_enable:
            return queues
        group = self._clients.consumers.get(request.consumer_group)
        if group is None or request.strategy_name not in (AVERAGELY, BY_CIRCLE):
            return None
        clients = sorted(group.client_ids)
        if mode.mode == POP:
            return _shared(request, queues, clients, mode.pop_share_queue_num)
        return allocate(request.strategy_name, request.client_id, queues, clients)

    # Routes

    async def _queues_of(self, topic: str) -> Queues | None:
        known = self._queues.get(topic)
        now_ms = self._clock.monotonic_ms()
        fresh_ms = self._settings.broker.load_balance_poll_name_server_interval
        if known is not None and known[1] and now_ms - known[0] < fresh_ms:
            return known[1]
        asking = self._asking.get(topic)
        if asking is None:
            asking = self._asking[topic] = asyncio.ensure_future(self._ask(topic))
            asking.add_done_callback(lambda _: self._asking.pop(topic, None))
        queues = await asyncio.shield(asking)
        if len(self._queues) >= MAX_ROUTES:
            self._queues.clear()
        self._queues[topic] = now_ms, queues
        return queues

    async def _ask(self, topic: str) -> Queues | None:
        """The queues of a topic on all brokers, sorted."""
        for address in self._name_servers.addresses:
            try:
                answer = await self._remoting.call(
                    address,
                    RequestCode.GET_ROUTEINFO_BY_TOPIC,
                    GetRouteInfoRequest(topic=topic),
                    timeout_s=ROUTE_TIMEOUT_S,
                )
                if answer.code == ResponseCode.SUCCESS:
                    return _queues_in(topic, decode_answer(TopicRoute, bytes(answer.body)))
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    return None
            except CometError as error:
                log.warning("the route of %s cannot be had from %s: %s", topic, address, error.message)
        known = self._queues.get(topic)
        return self._own_queues(topic) if known is None else known[1]

    def _own_queues(self, topic: str) -> Queues | None:
        config = self._topics.get(topic)
        if config is None or not config.perm & PERM_READ:
            return None
        name = self._settings.broker.broker_name
        return [MessageQueue(topic, name, number) for number in range(config.read_queue_nums)]


def _queues_in(topic: str, route: TopicRoute) -> Queues:
    return sorted(
        MessageQueue(topic, data.broker_name, number)
        for data in route.queue_datas
        if data.perm & PERM_READ
        for number in range(min(data.read_queue_nums, MAX_QUEUES))
    )


def _shared(
    request: QueryAssignmentRequest, queues: Queues, clients: Sequence[str], share: int
) -> Queues | None:
    """The queues of a client whose group pops; those of the `share` clients after it are its own, too."""
    if share <= 0 or share >= len(clients) - 1:
        return [*dict.fromkeys(MessageQueue(each.topic, each.broker_name, -1) for each in queues)]
    if request.client_id not in clients:
        return []
    index = clients.index(request.client_id)
    if len(clients) > len(queues):
        return [queues[index % len(queues)]]
    found: dict[MessageQueue, None] = {}
    for number in range(share + 1):
        client = clients[(index + number) % len(clients)]
        found.update(dict.fromkeys(allocate(request.strategy_name, client, queues, clients)))
    return [*found]


def allocate(strategy: str, client: str, queues: Queues, clients: Sequence[str]) -> Queues:
    """The queues of one client: neighbouring ones, or dealt out like cards."""
    if client not in clients:
        return []
    share = by_circle if strategy == BY_CIRCLE else averagely
    return share(queues, clients.index(client), len(clients))
