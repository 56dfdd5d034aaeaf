"""Topic routes: which brokers have a topic, and where its queues are.

Rules kept here:
- A topic is looked up once at a time; callers that ask meanwhile share the answer.
- A topic that does not exist yet gets the queues of the template topic (`TBW102`) for publishing.
- A topic that the name server does not know keeps its last route: brokers learn of new topics before name
  servers do.
- A broker name is known as long as some topic's route has it, with the latest addresses.
- A logical queue of a static topic belongs to a made-up broker name of its scope, so it stays the same queue
  when its data moves. Of several brokers that claim it, the one with the highest epoch has it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from cometmq.client.instance.name_servers import NameServers
from cometmq.model.errors import CometError, ResponseError, RouteNotFoundError, StateError
from cometmq.model.java_numbers import natural_int
from cometmq.model.names import DEFAULT_TOPIC
from cometmq.model.queue import MessageQueue
from cometmq.model.route import MASTER_ID, QueueData, TopicRoute
from cometmq.model.topic import MAX_QUEUES, PERM_READ, PERM_WRITE, TopicQueueMappingInfo
from cometmq.remoting.client import split_address
from cometmq.wire.bodies.json_body import decode_answer
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.namesrv import GetRouteInfoRequest

LOGICAL_BROKER_PREFIX: Final = "__syslo__"
NO_BROKER: Final = "__syslo__none__"
"""The broker name of a logical queue that no broker claims."""
_GLOBAL_SCOPE: Final = "__global__"
MAX_TOPICS: Final = 100_000
"""With this many topics, a new one replaces the oldest."""


def logical_broker_name(scope: str | None) -> str:
    return LOGICAL_BROKER_PREFIX + (scope or _GLOBAL_SCOPE)


def vip_address(address: str) -> str:
    """The address of the same broker for sends only."""
    host, port = split_address(address)
    return f"[{host}]:{port - 2}" if ":" in host else f"{host}:{port - 2}"


def static_queues(topic: str, route: TopicRoute) -> dict[MessageQueue, str] | None:
    """The logical queues of a topic with the broker name of each; None for an ordinary topic."""
    mappings = route.topic_queue_mapping_by_broker
    if not mappings:
        return None
    scopes: dict[str, list[tuple[str, TopicQueueMappingInfo]]] = {}
    for broker_name, info in mappings.items():
        scopes.setdefault(logical_broker_name(info.scope), []).append((broker_name, info))
    brokers: dict[MessageQueue, str] = {}
    for logical_name, claims in scopes.items():
        total = max(info.total_queues for _, info in claims)
        owners = dict.fromkeys(range(total), NO_BROKER)
        for broker_name, info in sorted(claims, key=lambda claim: claim[1].epoch):
            owners.update(dict.fromkeys(filter(owners.__contains__, info.curr_id_map or {}), broker_name))
        brokers |= {MessageQueue(topic, logical_name, number): name for number, name in owners.items()}
    return brokers


class TopicQueues(msgspec.Struct, frozen=True):
    """The route of a topic, and its queues."""

    topic: str
    route: TopicRoute
    publish: tuple[MessageQueue, ...]
    subscribe: tuple[MessageQueue, ...]
    logical: Mapping[MessageQueue, str] | None = None
    """The broker names of the logical queues of a static topic."""
    from_template: bool = False
    """The topic does not exist yet; these are the queues that it will get."""


class Routes:
    """The routes of all topics that a client uses."""

    def __init__(
        self, name_servers: NameServers, changed: Callable[[str], None], *, timeout_s: float = 3.0
    ) -> None:
        self._name_servers = name_servers
        self._changed = changed
        self._timeout_s = timeout_s
        self._topics: dict[str, TopicQueues] = {}
        self._brokers: dict[str, Mapping[int, str]] = {}
        self._users: Counter[str] = Counter()  # the number of topics with a broker in their route
        self._asking: dict[str, asyncio.Task[bool]] = {}
        self._awaited: Counter[str] = Counter()
        """How many callers wait for the route of a topic; it is not forgotten before they have seen it."""

    # Lookups.

    async def of(self, topic: str) -> TopicRoute | None:
        """The route of a topic; None if the name servers know none."""
        known = self._topics.get(topic)
        if known is None or known.from_template:
            await self.refresh(topic)
            known = self._topics.get(topic)
        return None if known is None or known.from_template else known.route

    async def any_broker(self, topic: str) -> Mapping[int, str] | None:
        """The addresses of one of a topic's brokers, by broker id; None if no broker is known."""
        route = await self.of(topic)
        found = route.broker_datas if route is not None else ()
        brokers = [broker.broker_addrs for broker in found if broker.broker_addrs]
        return random.choice(brokers) if brokers else None

    async def for_publishing(self, topic: str, template_queue_nums: int) -> TopicQueues | None:
        """The queues to send to; for a topic that does not exist yet, those that it will get."""
        known = self._topics.get(topic)
        if known is None or (not known.publish and not known.from_template):
            await self.refresh(topic)
            known = self._topics.get(topic)
        if known is None:
            template = await self._ask(DEFAULT_TOPIC)
            known = self._topics.get(topic)  # another caller may have found it meanwhile
            if known is None and template is not None:
                known = self._learn(topic, _as_template(template, template_queue_nums), from_template=True)
        return known

    async def refresh(self, topic: str) -> bool:
        """Look up a route again; True if it has changed."""
        task = self._asking.get(topic)
        if task is None:
            task = self._asking[topic] = asyncio.get_running_loop().create_task(self._refresh(topic))
            task.add_done_callback(lambda done: self._asked(topic, done))
        self._awaited[topic] += 1
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # the lookup, not the caller
                raise StateError(f"the client was stopped before the route of {topic} was known") from None
            raise
        finally:
            self._awaited[topic] -= 1
            if not self._awaited[topic]:
                del self._awaited[topic]

    def _asked(self, topic: str, task: asyncio.Task[bool]) -> None:
        del self._asking[topic]
        if not task.cancelled():
            task.exception()  # retrieved, in case nobody waited

    async def _refresh(self, topic: str) -> bool:
        route = await self._ask(topic)
        if route is None:
            return False
        before = self._topics.get(topic)
        self._learn(topic, route)
        if before is not None and not before.from_template and before.route == route:
            return False
        self._changed(topic)
        return True

    async def _ask(self, topic: str) -> TopicRoute | None:
        header = GetRouteInfoRequest(topic=topic, accept_standard_json_only=True)
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        answer = await self._name_servers.call(code, header, timeout_s=self._timeout_s)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            remark = answer.remark or "no reason given"
            raise ResponseError(f"the route of topic {topic} was refused: {remark}", code=answer.code)
        route = decode_answer(TopicRoute, answer.body)
        route.queue_datas.sort(key=lambda queues: queues.broker_name)
        route.broker_datas.sort(key=lambda broker: broker.broker_name)
        return route

    def _learn(self, topic: str, route: TopicRoute, *, from_template: bool = False) -> TopicQueues:
        logical = static_queues(topic, route)
        known = TopicQueues(
            topic,
            route,
            tuple(logical) if logical is not None else _publish_queues(topic, route),
            tuple(sorted(logical)) if logical is not None else _subscribe_queues(topic, route),
            logical,
            from_template,
        )
        if topic not in self._topics and len(self._topics) >= MAX_TOPICS:
            self._forget(next(iter(self._topics)))
        for broker in route.broker_datas:
            self._brokers[broker.broker_name] = broker.broker_addrs
            self._users[broker.broker_name] += 1
        self._forget(topic)  # after counting the new ones, so that no broker is dropped that stays
        self._topics[topic] = known
        return known

    def forget_topics(self, used: set[str]) -> None:
        """Drop the routes of unused topics, and brokers that only they had."""
        for topic in self._topics.keys() - used - self._awaited.keys():
            self._forget(topic)

    def _forget(self, topic: str) -> None:
        known = self._topics.pop(topic, None)
        for broker in known.route.broker_datas if known is not None else ():
            name = broker.broker_name
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name], self._brokers[name]

    async def stop(self) -> None:
        """Cancel all lookups; their callers get an error."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # Known routes.

    def known(self, topic: str) -> TopicQueues | None:
        """The known queues of a topic, without a lookup."""
        return self._topics.get(topic)

    def publish_queues(self, topic: str) -> Sequence[MessageQueue]:
        """The known queues of a topic that can be sent to."""
        known = self._topics.get(topic)
        return () if known is None else known.publish

    def subscribe_queues(self, topic: str) -> Sequence[MessageQueue]:
        """The known queues of a topic that can be read, sorted."""
        known = self._topics.get(topic)
        return () if known is None or known.from_template else known.subscribe

    def broker_of(self, queue: MessageQueue) -> str:
        """The broker name of a queue now; it differs from the queue's own for static topics."""
        if not queue.broker_name.startswith(LOGICAL_BROKER_PREFIX):
            return queue.broker_name
        known = self._topics.get(queue.topic)
        logical = None if known is None else known.logical
        return queue.broker_name if logical is None else logical.get(queue, queue.broker_name)

    def master_of(self, broker_name: str) -> str | None:
        """The address of the master."""
        return self._brokers.get(broker_name, {}).get(MASTER_ID)

    def need_master(self, broker_name: str) -> str:
        """The address of the master; raises if it is not known."""
        address = self.master_of(broker_name)
        if address is None:
            raise RouteNotFoundError(f"the master of broker {broker_name} is not known")
        return address

    def address_of(self, broker_name: str, broker_id: int = MASTER_ID) -> tuple[str, bool] | None:
        """The address to read from, and whether it is a replica: the wanted one, the next, or any."""
        addresses = self._brokers.get(broker_name)
        if not addresses:
            return None
        for wished in (broker_id, broker_id + 1) if broker_id != MASTER_ID else (broker_id,):
            if wished in addresses:
                return addresses[wished], wished != MASTER_ID
        any_id = next(iter(addresses))
        return addresses[any_id], any_id != MASTER_ID

    def broker_addresses(self) -> Mapping[str, Mapping[int, str]]:
        """All addresses, by broker name and broker id."""
        return self._brokers

    def has_broker_at(self, address: str) -> bool:
        return any(address in addresses.values() for addresses in self._brokers.values())


def _publish_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    if route.order_topic_conf:
        numbers = order_queues(topic, route.order_topic_conf)
        return tuple(
            MessageQueue(topic, name, each) for name, count in numbers.items() for each in range(count)
        )
    masters = {broker.broker_name for broker in route.broker_datas if MASTER_ID in broker.broker_addrs}
    return tuple(
        MessageQueue(topic, queues.broker_name, number)
        for queues in route.queue_datas
        if queues.perm & PERM_WRITE and queues.broker_name in masters
        for number in range(min(queues.write_queue_nums, MAX_QUEUES))
    )


def order_queues(topic: str, configuration: str) -> dict[str, int]:
    """The number of queues on each broker in an order configuration, `broker:count;broker:count`."""
    found: dict[str, int] = {}
    for item in filter(None, configuration.split(";")):
        name, _, count = item.partition(":")
        number = natural_int(count)
        if not name or number is None or number > MAX_QUEUES:
            raise CometError(
                f"topic {topic} has the order configuration {configuration!r}; fix {item!r} there"
            )
        found[name] = number
    return found


def _subscribe_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    return tuple(
        sorted(
            MessageQueue(topic, queues.broker_name, number)
            for queues in route.queue_datas
            if queues.perm & PERM_READ
            for number in range(min(queues.read_queue_nums, MAX_QUEUES))
        )
    )


def _as_template(route: TopicRoute, queue_nums: int) -> TopicRoute:
    """The route of a topic that will be created from this template."""

    def shrunk(queues: QueueData) -> QueueData:
        count = min(queue_nums, queues.read_queue_nums)
        return msgspec.structs.replace(queues, read_queue_nums=count, write_queue_nums=count)

    return TopicRoute([shrunk(queues) for queues in route.queue_datas], route.broker_datas)
