"""The registry: five tables and the rules by which brokers enter and leave them. No I/O, no clock.

Rules kept here:
- Every change updates all tables together; the caller serialises the changes.
- Every change that a route look-up could see is reported to `RouteChanges`, so that answers can be cached.
- Input was validated by its declared struct; the rules follow RocketMQ's, case by case.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final, Protocol

import msgspec

from cometmq.model.route import MASTER_ID, BrokerData, QueueData
from cometmq.model.topic import (
    PERM_READ,
    PERM_WRITE,
    DataVersion,
    TopicConfig,
    TopicQueueMappingInfo,
)

DEFAULT_BROKER_TIMEOUT_MS: Final = 120_000

LiveKey = tuple[str, str]
"""Cluster name and address of a broker."""


class RouteChanges(Protocol):
    """Is told which routes have changed."""

    def topic_changed(self, topic: str) -> None: ...

    def brokers_changed(self) -> None: ...


class LiveBroker(msgspec.Struct):
    """A broker with a recent heartbeat."""

    broker_name: str
    last_update_ms: int
    timeout_ms: int
    data_version: DataVersion
    channel: Hashable
    """The connection on which it registered last; when it closes, the broker is gone."""
    ha_server_addr: str


class BrokerRegistration(msgspec.Struct):
    """The content of one registration."""

    cluster: str
    broker_name: str
    broker_addr: str
    broker_id: int
    ha_server_addr: str
    channel: Hashable
    data_version: DataVersion = DataVersion()
    topics: dict[str, TopicConfig] = msgspec.field(default_factory=dict)
    mappings: dict[str, TopicQueueMappingInfo] = msgspec.field(default_factory=dict)
    filter_servers: list[str] | None = None
    timeout_ms: int | None = None
    enable_acting_master: bool | None = None
    """None marks a broker that does not know acting masters."""
    zone_name: str | None = None


class MinIdChange(msgspec.Struct, frozen=True):
    """The smallest broker id of a group has changed; its members are notified."""

    broker_name: str
    addresses: dict[int, str]
    offline_addr: str | None = None
    ha_server_addr: str | None = None


class Registered(msgspec.Struct):
    """The result of a registration."""

    master_addr: str | None = None
    ha_server_addr: str | None = None
    min_id_change: MinIdChange | None = None
    taken_from: str | None = None
    """The address that had this name and id until now, if it was another one."""
    kept_by: str | None = None
    """The address that keeps this name and id, because its state is newer."""


class BrokerLeft(msgspec.Struct, frozen=True):
    """A broker to take out of the tables."""

    cluster: str
    broker_name: str
    broker_addr: str
    broker_id: int


class _Told(msgspec.Struct):
    """The topics that a broker registered lately."""

    everything: set[str] = msgspec.field(default_factory=set)
    """In its last registration of everything, or in the part that stands for it."""
    apart: set[str] = msgspec.field(default_factory=set)
    """In others after that."""
    earlier: set[str] = msgspec.field(default_factory=set)
    """In others between that and the one before."""

    def lately(self) -> set[str]:
        """All of them if some were told apart; else the next registration of everything says it all."""
        return self.everything | self.apart | self.earlier if self.apart or self.earlier else set()


class RouteTables:
    """Topics, brokers, clusters, live brokers and filter servers."""

    def __init__(self, changes: RouteChanges) -> None:
        self._changes = changes
        self.topics: dict[str, dict[str, QueueData]] = {}
        self._topics_of: dict[str, dict[str, None]] = {}
        """By broker, its topics, in the order in which they came."""
        self.brokers: dict[str, BrokerData] = {}
        self.clusters: dict[str, set[str]] = {}
        self.live: dict[LiveKey, LiveBroker] = {}
        self.filter_servers: dict[LiveKey, list[str]] = {}
        self.mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}
        self._by_channel: dict[Hashable, set[LiveKey]] = {}
        self._told: dict[str, _Told] = {}
        """By broker, the topics of its last registrations."""

    # Registration.

    def register(
        self, new: BrokerRegistration, now_ms: int, *, delete_missing_topics: bool = False
    ) -> Registered | None:
        """Take a broker in, or news of it; None refuses a first registration of a single topic."""
        key = (new.cluster, new.broker_addr)
        self.clusters.setdefault(new.cluster, set()).add(new.broker_name)
        broker = self.brokers.get(new.broker_name)
        first = broker is None
        if broker is None:
            broker = self.brokers[new.broker_name] = BrokerData(new.cluster, new.broker_name)
        before = _visible(broker)
        broker.enable_acting_master = bool(new.enable_acting_master)
        broker.zone_name = new.zone_name
        addresses = broker.broker_addrs
        min_changed = new.broker_id < min(addresses, default=0)
        for other_id in [
            i for i, addr in addresses.items() if addr == new.broker_addr and i != new.broker_id
        ]:
            del addresses[other_id]  # the same broker in another role
        if self._is_outdated(new, addresses.get(new.broker_id)):
            self._forget_live(key)
            self._report_broker(broker, before)
            return Registered(kept_by=addresses[new.broker_id])
        if new.broker_id not in addresses and len(new.topics) == 1:
            self._report_broker(broker, before)
            return None
        first |= new.broker_id not in addresses
        known_addr = addresses.get(new.broker_id)
        addresses[new.broker_id] = new.broker_addr
        self._register_topics(new, broker, first, delete_missing_topics)
        self._set_live(key, new, now_ms)
        filters_changed = self._set_filter_servers(key, new.filter_servers)
        self._report_broker(broker, None if filters_changed else before)
        registered = self._registered(new, broker, min_changed)
        registered.taken_from = None if known_addr == new.broker_addr else known_addr
        return registered

    def _is_outdated(self, new: BrokerRegistration, known_addr: str | None) -> bool:
        """The id belongs to another address whose state is newer (a fenced master that comes back)."""
        if known_addr is None or known_addr == new.broker_addr:
            return False
        known = self.live.get((new.cluster, known_addr))
        return known is not None and known.data_version.state_version > new.data_version.state_version

    def _register_topics(
        self, new: BrokerRegistration, broker: BrokerData, first: bool, delete_missing: bool
    ) -> None:
        """Only a master, or the first replica of a newer broker, speaks for the topics of its name."""
        prime = new.broker_id == MASTER_ID or (
            new.enable_acting_master is not None and new.broker_id == min(broker.broker_addrs)
        )
        if not prime:
            return
        self._drop_missing(new, delete=delete_missing and not new.mappings)
        known = self.live.get((new.cluster, new.broker_addr))
        changed = first or known is None or known.data_version != new.data_version
        read_only = new.broker_id != MASTER_ID and broker.enable_acting_master
        for config in new.topics.values():
            queues = self.topics.get(config.topic_name)
            if changed or queues is None or new.broker_name not in queues:
                perm = config.perm & ~PERM_WRITE if read_only else config.perm
                self._put_queues(config.topic_name, _queue_data(new.broker_name, config, perm))
        if changed:
            for name, mapping in new.mappings.items():
                by_broker = self.mappings.setdefault(name, {})
                if by_broker.get(mapping.bname) != mapping:
                    by_broker[mapping.bname] = mapping
                    self._changes.topic_changed(name)

    def _drop_missing(self, new: BrokerRegistration, *, delete: bool) -> None:
        """Forget the topics that a broker has no more, if it tells everything that it has.

        A broker may tell what has changed only, or everything in several parts. One part has the topic of the
        broker's own name, and stands for everything. A new topic may move others to another part, after that
        one: if anything came in other parts, a topic stays until that part has come twice without it.
        """
        told = self._told.setdefault(new.broker_name, _Told())
        if not _tells_everything(new):
            told.apart.update(new.topics)
            return
        if delete:
            kept = told.lately() | new.topics.keys()
            for topic in [t for t in self._topics_of.get(new.broker_name, ()) if t not in kept]:
                self._drop_queues(topic, new.broker_name)
        self._told[new.broker_name] = _Told(everything=set(new.topics), earlier=told.apart)

    def _registered(self, new: BrokerRegistration, broker: BrokerData, min_changed: bool) -> Registered:
        result = Registered()
        if new.broker_id != MASTER_ID:
            master_addr = broker.broker_addrs.get(MASTER_ID)
            master = None if master_addr is None else self.live.get((new.cluster, master_addr))
            if master is not None:
                result.master_addr = master_addr
                result.ha_server_addr = master.ha_server_addr
        if min_changed:
            addresses = dict(broker.broker_addrs)
            result.min_id_change = MinIdChange(new.broker_name, addresses, ha_server_addr=new.ha_server_addr)
        return result

    def register_topic(self, topic: str, queue_datas: Iterable[QueueData]) -> None:
        """Take one topic of registered brokers in; the first unknown broker ends it."""
        known = topic in self.topics
        accepted: list[QueueData] = []
        for queues in queue_datas:
            if queues.broker_name not in self.brokers:
                if known:
                    break
                return
            accepted.append(queues)
        for queues in accepted:
            self._told.setdefault(queues.broker_name, _Told()).apart.add(topic)
            self._put_queues(topic, queues)

    # Liveness.

    def data_version(self, key: LiveKey) -> DataVersion | None:
        known = self.live.get(key)
        return None if known is None else known.data_version

    def heard_of(self, key: LiveKey, now_ms: int) -> None:
        """A sign of life; of an unknown broker it means nothing."""
        known = self.live.get(key)
        if known is not None:
            known.last_update_ms = now_ms

    def expired(self, now_ms: int) -> list[tuple[LiveKey, LiveBroker]]:
        """Brokers that were silent for too long."""
        return [
            (key, live) for key, live in self.live.items() if live.last_update_ms + live.timeout_ms < now_ms
        ]

    def brokers_of(self, channel: Hashable) -> list[LiveKey]:
        """Brokers whose last registration came on this connection."""
        return list(self._by_channel.get(channel, ()))

    def leaving(self, key: LiveKey) -> BrokerLeft | None:
        """Returns the removal of a broker; None if another address has its name and id."""
        known = self.live.get(key)
        broker = None if known is None else self.brokers.get(known.broker_name)
        if broker is not None and broker.cluster == key[0]:
            for broker_id, address in broker.broker_addrs.items():
                if address == key[1]:
                    return BrokerLeft(key[0], broker.broker_name, address, broker_id)
        self._forget_live(key)
        return None

    def unregister(self, leaving: Iterable[BrokerLeft]) -> list[MinIdChange]:
        """Take brokers out of all tables; returns the groups with a new smallest id."""
        removed: set[str] = set()
        reduced: set[str] = set()
        min_changes: dict[str, MinIdChange] = {}
        for left in leaving:
            self._forget_live((left.cluster, left.broker_addr))
            broker = self.brokers.get(left.broker_name)
            if broker is None:
                continue
            addresses = broker.broker_addrs
            min_changed = left.broker_id == min(addresses, default=None)
            for broker_id in [i for i, addr in addresses.items() if addr == left.broker_addr]:
                del addresses[broker_id]
            if not addresses:
                self._drop_broker(broker)
                removed.add(left.broker_name)
                reduced.discard(left.broker_name)
                min_changes.pop(left.broker_name, None)
            else:
                reduced.add(left.broker_name)
                if min_changed and broker.enable_acting_master:
                    change = MinIdChange(left.broker_name, dict(addresses), offline_addr=left.broker_addr)
                    min_changes[left.broker_name] = change
        if removed or reduced:
            self._clean_topics(removed, reduced)
            self._changes.brokers_changed()
        return list(min_changes.values())

    def _drop_broker(self, broker: BrokerData) -> None:
        del self.brokers[broker.broker_name]
        self._told.pop(broker.broker_name, None)
        for cluster, names in list(self.clusters.items()):  # two clusters may have used the same name
            names.discard(broker.broker_name)
            if not names:
                del self.clusters[cluster]

    def _clean_topics(self, removed: set[str], reduced: set[str]) -> None:
        without_master = {
            name
            for name in reduced
            if self.brokers[name].enable_acting_master and MASTER_ID not in self.brokers[name].broker_addrs
        }
        for name in removed:
            for topic in list(self._topics_of.get(name, ())):
                self._drop_queues(topic, name)
        for name in without_master:
            self.wipe_write_perm(name)

    # Topics.

    def wipe_write_perm(self, broker_name: str) -> int:
        """Stop writes to a broker; how many topics that touched."""
        return self._set_perms(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Allow reads and writes on a broker again; how many topics that touched."""
        return self._set_perms(broker_name, lambda _: PERM_READ | PERM_WRITE)

    def _set_perms(self, broker_name: str, change: Callable[[int], int]) -> int:
        touched = list(self._topics_of.get(broker_name, ()))
        for topic in touched:
            queues = self.topics[topic][broker_name]
            self._put_queues(topic, msgspec.structs.replace(queues, perm=change(queues.perm)))
        return len(touched)

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Forget a topic, everywhere or in one cluster."""
        queues = self.topics.get(topic)
        if queues is None:
            return
        names = set(queues) if cluster is None else self.clusters.get(cluster, set()) & queues.keys()
        for name in names:
            self._drop_queues(topic, name)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        names = self.clusters.get(cluster, set())
        return [topic for topic, queues in self.topics.items() if names & queues.keys()]

    def topics_with_flag(self, wanted: int, unwanted: int = 0) -> list[str]:
        """Topics whose system flag, as their first broker has it, has one bit and has not another."""
        found = []
        for topic, queues in self.topics.items():
            flag = next(iter(queues.values())).topic_sys_flag
            if flag & wanted and not flag & unwanted:
                found.append(topic)
        return found

    # The tables together.

    def _put_queues(self, topic: str, queues: QueueData) -> None:
        by_broker = self.topics.setdefault(topic, {})
        if by_broker.get(queues.broker_name) != queues:
            by_broker[queues.broker_name] = queues
            self._topics_of.setdefault(queues.broker_name, {})[topic] = None
            self._changes.topic_changed(topic)

    def _drop_queues(self, topic: str, broker_name: str) -> None:
        queues = self.topics[topic]
        del queues[broker_name]
        topics = self._topics_of[broker_name]
        del topics[topic]
        if not topics:
            del self._topics_of[broker_name]
        if not queues:
            del self.topics[topic]
        self._changes.topic_changed(topic)

    def _set_live(self, key: LiveKey, new: BrokerRegistration, now_ms: int) -> None:
        self._release_channel(key)
        timeout_ms = DEFAULT_BROKER_TIMEOUT_MS if new.timeout_ms is None else new.timeout_ms
        self.live[key] = LiveBroker(
            new.broker_name, now_ms, timeout_ms, new.data_version, new.channel, new.ha_server_addr
        )
        self._by_channel.setdefault(new.channel, set()).add(key)

    def _forget_live(self, key: LiveKey) -> None:
        self._release_channel(key)
        self.live.pop(key, None)
        if self.filter_servers.pop(key, None) is not None:
            self._changes.brokers_changed()

    def _release_channel(self, key: LiveKey) -> None:
        known = self.live.get(key)
        if known is not None:
            keys = self._by_channel.get(known.channel, set())
            keys.discard(key)
            if not keys:
                self._by_channel.pop(known.channel, None)

    def _set_filter_servers(self, key: LiveKey, servers: list[str] | None) -> bool:
        known = self.filter_servers.get(key)
        if servers is None or (servers or None) == known:
            return False
        if servers:
            self.filter_servers[key] = servers
        else:
            del self.filter_servers[key]
        return True

    def _report_broker(self, broker: BrokerData, before: object) -> None:
        if before != _visible(broker):
            self._changes.brokers_changed()


def _tells_everything(new: BrokerRegistration) -> bool:
    """Whether it has the topic of the broker's own name, which every broker makes and nobody changes."""
    return new.broker_name in new.topics and len(new.topics) > 1


def _visible(broker: BrokerData) -> object:
    """The fields of a broker that its routes show."""
    return dict(broker.broker_addrs), broker.zone_name, broker.enable_acting_master


def _queue_data(broker_name: str, topic: TopicConfig, perm: int) -> QueueData:
    return QueueData(broker_name, topic.read_queue_nums, topic.write_queue_nums, perm, topic.topic_sys_flag)
