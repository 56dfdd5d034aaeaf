"""A registry with brokers in it, so that the tests of the tables read as sentences."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from pathlib import Path

from cometmq.model.route import TopicRoute
from cometmq.model.topic import DataVersion, TopicConfig, TopicQueueMappingInfo
from cometmq.namesrv.config import NamesrvConfig
from cometmq.namesrv.notices import MinIdNotices
from cometmq.namesrv.routes import pick_up_route
from cometmq.namesrv.state import NamesrvState
from cometmq.namesrv.tables import BrokerLeft, BrokerRegistration, MinIdChange, Registered, RouteTables
from cometmq.remoting.client import RemotingClient
from cometmq.remoting.handler import Answer, Deferred, Result
from cometmq.testing import VirtualClock

CLUSTER = "DefaultCluster"
A1 = "10.0.0.1:10911"
A2 = "10.0.0.2:10911"
A3 = "10.0.0.3:10911"
NAME = "broker-a"
READ = 4
READ_WRITE = 6


def topic(name: str, *, queues: int = 4, perm: int = READ_WRITE, flag: int = 0) -> TopicConfig:
    return TopicConfig(name, queues, queues, perm, topic_sys_flag=flag)


def mapping(name: str, bname: str = NAME, *, queues: int = 8, epoch: int = 1) -> TopicQueueMappingInfo:
    return TopicQueueMappingInfo(name, bname, queues, epoch, scope="__global__", curr_id_map={0: 0})


def broker(
    address: str = A1,
    broker_id: int = 0,
    name: str = NAME,
    *,
    topics: Iterable[str | TopicConfig] = ("T1", "T2"),
    counter: int = 1,
    state: int = 0,
    cluster: str = CLUSTER,
    acting: bool | None = False,
    channel: Hashable = None,
    filters: list[str] | None = None,
    zone: str | None = None,
    timeout_ms: int | None = None,
    mappings: Iterable[TopicQueueMappingInfo] = (),
) -> BrokerRegistration:
    """What a broker says; `counter` is the version of its topics, `state` its controller's epoch."""
    configs = [topic(each) if isinstance(each, str) else each for each in topics]
    host, _, port = address.rpartition(":")
    return BrokerRegistration(
        cluster=cluster,
        broker_name=name,
        broker_addr=address,
        broker_id=broker_id,
        ha_server_addr=f"{host}:{int(port) + 1}",
        channel=f"connection of {address}" if channel is None else channel,
        data_version=DataVersion(state, 1_700_000_000_000, counter),
        topics={config.topic_name: config for config in configs},
        mappings={each.topic: each for each in mappings},
        filter_servers=filters,
        timeout_ms=timeout_ms,
        enable_acting_master=acting,
        zone_name=zone,
    )


class Heard:
    """Remembers what the tables reported since it was asked last."""

    def __init__(self) -> None:
        self._topics: set[str] = set()
        self._brokers = False

    def topic_changed(self, topic: str) -> None:
        self._topics.add(topic)

    def brokers_changed(self) -> None:
        self._brokers = True

    def take(self) -> tuple[set[str], bool]:
        """The topics that changed, and whether brokers did."""
        taken = (self._topics, self._brokers)
        self._topics, self._brokers = set(), False
        return taken


class Registry(RouteTables):
    """The tables, with short ways to fill them and to look into them."""

    def __init__(self, *registrations: BrokerRegistration) -> None:
        self.heard = Heard()
        super().__init__(self.heard)
        for each in registrations:
            self.come(each)
        self.heard.take()

    def come(self, new: BrokerRegistration, *, now_ms: int = 0, delete_missing: bool = False) -> Registered:
        registered = self.register(new, now_ms, delete_missing_topics=delete_missing)
        assert registered is not None, "the registration was refused"
        return registered

    def leave(self, *gone: BrokerRegistration) -> list[MinIdChange]:
        return self.unregister(
            [BrokerLeft(each.cluster, each.broker_name, each.broker_addr, each.broker_id) for each in gone]
        )

    def addresses(self, name: str = NAME) -> dict[int, str]:
        return self.brokers[name].broker_addrs

    def perm(self, topic: str, name: str = NAME) -> int:
        return self.topics[topic][name].perm

    def route(self, topic: str, *, acting_master: bool = False) -> TopicRoute:
        route = pick_up_route(self, topic, acting_master=acting_master)
        assert route is not None, f"{topic} has no route"
        return route


class MemoryFiles:
    """Files that exist only here."""

    def __init__(self) -> None:
        self.contents: dict[Path, bytes] = {}

    def read(self, path: Path) -> bytes | None:
        return self.contents.get(path)

    def replace(self, path: Path, data: bytes) -> None:
        self.contents[path] = data


class NoNotices(MinIdNotices):
    """Remembers the notices instead of sending them."""

    def __init__(self) -> None:
        super().__init__(RemotingClient())
        self.sent: list[MinIdChange] = []

    def send(self, change: MinIdChange) -> None:
        self.sent.append(change)


def namesrv_state(config: NamesrvConfig | None = None) -> NamesrvState:
    """What the handlers share, without sockets and without a disk."""
    return NamesrvState(
        config or NamesrvConfig(kv_config_path="/kv.json", config_store_path="/ns.conf"),
        clock=VirtualClock(),
        files=MemoryFiles(),
        notices=NoNotices(),
    )


def finished(result: Result) -> Answer:
    """What a handler answers, also where it has to wait first."""
    if isinstance(result, Answer):
        return result
    assert not isinstance(result, Deferred)

    async def wait() -> Answer:
        return await result

    return asyncio.run(wait())
