"""Whatever happens, in whatever order: cached routes are right and the tables agree (N3, N7)."""

from __future__ import annotations

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from cometmq.model.route import QueueData
from cometmq.namesrv.handlers.kv import KvHandlers
from cometmq.namesrv.tables import BrokerLeft, BrokerRegistration
from cometmq.remoting.handler import Answer
from cometmq.wire.bodies.route import encode_route
from cometmq.wire.headers.namesrv import DeleteKVConfigRequest, PutKVConfigRequest
from tests.unit.namesrv.kit import broker, finished, mapping, namesrv_state, topic

NAMES = st.sampled_from(["broker-a", "broker-b"])
CLUSTERS = st.sampled_from(["C1", "C2"])
ADDRESSES = st.sampled_from([f"10.0.0.{number}:10911" for number in range(1, 5)])
IDS = st.integers(0, 2)
TOPIC_NAMES = ["T1", "T2", "T3", "rmq_sys_SYNC_BROKER_MEMBER_broker-a"]
TOPICS = st.sampled_from(TOPIC_NAMES)
PERMS = st.sampled_from([2, 4, 6, 7])
CONFIGS = st.builds(topic, TOPICS, queues=st.integers(1, 2), perm=PERMS)
QUEUES = st.builds(QueueData, NAMES, st.integers(1, 2), perm=PERMS)
REGISTRATIONS = st.builds(
    broker,
    ADDRESSES,
    IDS,
    NAMES,
    topics=st.lists(CONFIGS, max_size=3),
    counter=st.integers(1, 2),
    state=st.integers(0, 1),
    cluster=CLUSTERS,
    acting=st.sampled_from([None, False, True]),
    channel=st.sampled_from(["x", "y"]),
    filters=st.sampled_from([None, [], ["f:1"], ["f:2"]]),
    zone=st.sampled_from([None, "east"]),
    mappings=st.lists(st.builds(mapping, TOPICS, NAMES, epoch=st.integers(1, 2)), max_size=1),
)
PARTS = [name for name in BrokerRegistration.__struct_fields__ if name != "ha_server_addr"]


class CachedRoutes(RuleBasedStateMachine):
    """Changes the tables in every way there is and looks every route up after each step."""

    @initialize()
    def build(self) -> None:
        self.state = namesrv_state()
        self.tables = self.state.tables
        self.kv = KvHandlers(self.state)
        self.said: list[BrokerRegistration] = []

    @rule(new=REGISTRATIONS, delete_missing=st.booleans())
    def register(self, new: BrokerRegistration, delete_missing: bool) -> None:
        self.said.append(new)
        self.tables.register(new, 0, delete_missing_topics=delete_missing)

    @precondition(lambda self: self.said)
    @rule(data=st.data(), part=st.sampled_from(PARTS))
    def register_again_with_one_difference(self, data: st.DataObject, part: str) -> None:
        known, other = data.draw(st.sampled_from(self.said)), data.draw(REGISTRATIONS)
        new = replace(known, **{part: getattr(other, part)})
        self.said.append(new)
        self.tables.register(new, 0)

    @rule(new=REGISTRATIONS)
    def register_twice(self, new: BrokerRegistration) -> None:
        self.tables.register(new, 0)
        before = self.look_up_all()
        self.tables.register(new, 0)
        assert [id(answer) for answer in self.look_up_all()] == [id(answer) for answer in before]

    @rule(gone=st.lists(st.builds(BrokerLeft, CLUSTERS, NAMES, ADDRESSES, IDS), min_size=1, max_size=3))
    def unregister(self, gone: list[BrokerLeft]) -> None:
        self.tables.unregister(gone)

    @rule(channel=st.sampled_from(["x", "y"]))
    def connection_closes(self, channel: str) -> None:
        for key in self.tables.brokers_of(channel):
            left = self.tables.leaving(key)
            if left is not None:
                self.tables.unregister([left])
        assert self.tables.brokers_of(channel) == []

    @rule(name=NAMES)
    def wipe(self, name: str) -> None:
        self.tables.wipe_write_perm(name)

    @rule(name=NAMES)
    def add(self, name: str) -> None:
        self.tables.add_write_perm(name)

    @rule(name=TOPICS, cluster=st.none() | CLUSTERS)
    def delete_topic(self, name: str, cluster: str | None) -> None:
        self.tables.delete_topic(name, cluster)

    @rule(name=TOPICS, queues=st.lists(QUEUES, max_size=2))
    def register_topic(self, name: str, queues: list[QueueData]) -> None:
        self.tables.register_topic(name, queues)

    @rule(key=TOPICS, value=st.sampled_from(["a:1", "a:2"]))
    def put_order(self, key: str, value: str) -> None:
        header = PutKVConfigRequest(namespace="ORDER_TOPIC_CONFIG", key=key, value=value)
        finished(self.kv.put(header))

    @rule(key=TOPICS)
    def delete_order(self, key: str) -> None:
        header = DeleteKVConfigRequest(namespace="ORDER_TOPIC_CONFIG", key=key)
        finished(self.kv.delete(header))

    @rule(order=st.booleans(), acting=st.booleans())
    def change_settings(self, order: bool, acting: bool) -> None:
        config = replace(self.state.config, order_message_enable=order, support_acting_master=acting)
        self.state.change_config(config)

    def look_up_all(self) -> list[Answer | None]:
        get, find = self.state.routes.get, self.state.find_route
        return [get(name, standard, find) for name in TOPIC_NAMES for standard in (True, False)]

    @invariant()
    def cached_routes_are_right(self) -> None:
        state = self.state
        for name in TOPIC_NAMES:
            route = state.find_route(name)
            for standard in (True, False):
                answer = state.routes.get(name, standard, state.find_route)
                expected = None if route is None else encode_route(route, standard=standard)
                assert (None if answer is None else answer.body) == expected

    @invariant()
    def tables_agree(self) -> None:
        tables = self.tables
        assert all(queues and queues.keys() <= tables.brokers.keys() for queues in tables.topics.values())
        assert set().union(*tables.clusters.values()) == tables.brokers.keys()
        assert all(tables.clusters.values()), "no empty cluster"
        assert tables.filter_servers.keys() <= tables.live.keys()
        for each in tables.brokers.values():
            addresses = list(each.broker_addrs.values())
            assert len(addresses) == len(set(addresses)), "an address has one id"
        for channel in ("x", "y"):
            keys = {key for key, live in tables.live.items() if live.channel == channel}
            assert set(tables.brokers_of(channel)) == keys


# Not shrunk: that takes minutes, and forty steps can be read.
CachedRoutes.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
TestCachedRoutes = CachedRoutes.TestCase
