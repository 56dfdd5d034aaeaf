"""What every family of administration requests is built on: the life of the admin client, and its calls.

Rules kept here:
- What concerns a cluster is done on every master of it; the answer of each is awaited, and the first failure
  is raised.
- At most `MOST_AT_ONCE` requests are under way for one question, however many brokers, topics or groups it
  is about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Final, Self, TypeVar, Unpack

from cometmq.client.admin.results import ClusterInfo
from cometmq.client.instance.identity import client_id
from cometmq.client.instance.instance import ClientInstance
from cometmq.client.settings import ClientOptions, ClientSettings
from cometmq.model.errors import ClientError, NotFoundError, RouteNotFoundError, StateError
from cometmq.model.route import MASTER_ID, TopicRoute
from cometmq.wire.bodies.json_body import decode_answer
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import Command
from cometmq.wire.header.schema import Header
from cometmq.wire.takeovers import ClusterInfoRequest

MOST_AT_ONCE: Final = 16

K = TypeVar("K")
T = TypeVar("T")


async def for_each(keys: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> dict[K, T]:
    """Ask about each of them, several at once; the first failure is raised."""
    gate = asyncio.Semaphore(MOST_AT_ONCE)

    async def asked(key: K) -> T:
        async with gate:
            return await ask(key)

    wanted = list(keys)
    answers = await asyncio.gather(*(asked(key) for key in wanted))
    return dict(zip(wanted, answers, strict=True))


class AdminBase:
    """Asks name servers and brokers."""

    def __init__(self, settings: ClientSettings | None = None, **options: Unpack[ClientOptions]) -> None:
        if settings is not None and options:
            raise TypeError("give settings, or keywords, not both")
        self.settings = settings or ClientSettings(**options)
        self._running: ClientInstance | None = None

    async def start(self) -> None:
        """Make ready; connections are made when they are needed."""
        if self._running is None:
            self._running = ClientInstance(client_id(self.settings), self.settings)

    async def stop(self) -> None:
        instance, self._running = self._running, None
        if instance is not None:
            instance.check_usable()
            await instance.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def _instance(self) -> ClientInstance:
        if self._running is None:
            raise StateError("the admin client is not running; use it between start and stop")
        self._running.check_usable()
        return self._running

    # What there is.

    async def cluster_info(self, namesrv: str | None = None) -> ClusterInfo:
        """All brokers and clusters, as one name server knows them, or this one."""
        code, header = RequestCode.GET_BROKER_CLUSTER_INFO, ClusterInfoRequest(takeovers=True)
        if namesrv is not None:
            answer = await self._ask(namesrv, code, header)
        else:
            timeout_s = self.settings.call_timeout_s
            answer = await self._instance.name_servers.call_ok(code, header, timeout_s=timeout_s)
        return decode_answer(ClusterInfo, answer.body)

    async def masters(self, cluster: str | None = None) -> Mapping[str, str]:
        """The masters of a cluster, or of all, by broker name."""
        info = await self.cluster_info()
        if cluster is not None and cluster not in info.cluster_addr_table:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise NotFoundError(f"there is no cluster {cluster!r}; the name server knows: {known}")
        found = {
            name: broker.broker_addrs[MASTER_ID]
            for name, broker in sorted(info.broker_addr_table.items())
            if MASTER_ID in broker.broker_addrs and cluster in (None, broker.cluster)
        }
        if not found:
            raise ClientError("the name server knows no master; start a broker first")
        return found

    async def topic_route(self, topic: str) -> TopicRoute | None:
        """Where the queues of a topic are; None if no name server knows the topic."""
        routes = self._instance.routes
        routes.forget_topics(set())
        return await routes.of(topic)

    # How brokers are asked.

    async def _masters_of(self, topic: str) -> Mapping[str, str]:
        route = await self.topic_route(topic)
        if route is None:
            raise RouteNotFoundError(f"no name server knows topic {topic}")
        return {
            broker.broker_name: broker.broker_addrs[MASTER_ID]
            for broker in route.broker_datas
            if MASTER_ID in broker.broker_addrs
        }

    async def _ask(
        self, address: str, code: RequestCode, header: Header | None = None, *, body: bytes = b""
    ) -> Command:
        timeout_s = self.settings.call_timeout_s
        return await self._instance.remoting.call_ok(address, code, header, body=body, timeout_s=timeout_s)
