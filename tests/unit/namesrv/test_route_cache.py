"""Cached routes: the same bytes until something that they show changes, and never longer (N7)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from cometmq.model.route import QueueData
from cometmq.namesrv.config import NamesrvConfig
from cometmq.namesrv.handlers.config import ConfigHandlers
from cometmq.namesrv.handlers.kv import KvHandlers
from cometmq.namesrv.state import NamesrvState
from cometmq.namesrv.tables import BrokerLeft
from cometmq.remoting.handler import Answer
from cometmq.wire.bodies.route import encode_route
from cometmq.wire.frame.command import Command
from cometmq.wire.frame.framing import JSON
from cometmq.wire.headers.namesrv import DeleteKVConfigRequest, PutKVConfigRequest
from tests.unit.namesrv.kit import A1, A2, CLUSTER, NAME, broker, finished, mapping, namesrv_state, topic

ORDER = "ORDER_TOPIC_CONFIG"
SOMEBODY: Any = SimpleNamespace(remote_address="test")


def answer(state: NamesrvState, name: str = "T1", *, standard: bool = True) -> Answer | None:
    return state.routes.get(name, standard, state.find_route)


def text(shown: Answer | None) -> bytes:
    """The body of an answer that has one."""
    assert shown is not None
    assert isinstance(shown.body, bytes)
    return shown.body


def fresh(state: NamesrvState, name: str = "T1", *, standard: bool = True) -> bytes | None:
    route = state.find_route(name)
    return None if route is None else encode_route(route, standard=standard)


def change_setting(state: NamesrvState, text: str) -> None:
    request = Command(318, 1, 0, 479, "JAVA", None, JSON, text.encode())
    assert finished(ConfigHandlers(state).update(request, SOMEBODY)).code == 0


def put_order(state: NamesrvState) -> None:
    header = PutKVConfigRequest(namespace=ORDER, key="T1", value="broker-a:9")
    assert finished(KvHandlers(state).put(header)).code == 0


def delete_order(state: NamesrvState) -> None:
    header = DeleteKVConfigRequest(namespace=ORDER, key="T1")
    assert finished(KvHandlers(state).delete(header)).code == 0


STRANGER = BrokerLeft(CLUSTER, "nobody", "10.9.9.9:1", 0)
MASTER = broker(A1, acting=True, filters=["f:1"])
SLAVE = broker(A2, 1, acting=True)


def prepared() -> NamesrvState:
    """A group of two with a filter server; every setting that changes routes is on."""
    state = namesrv_state(
        NamesrvConfig(
            kv_config_path="/kv.json",
            config_store_path="/ns.conf",
            order_message_enable=True,
            support_acting_master=True,
        )
    )
    put_order(state)
    for each in (MASTER, SLAVE):
        state.tables.register(each, 0)
    return state


CHANGES: dict[str, Callable[[NamesrvState], object]] = {
    "a new address of the master": lambda s: s.tables.register(broker("10.0.0.7:1", acting=True), 0),
    "another slave": lambda s: s.tables.register(broker("10.0.0.7:1", 2, acting=True), 0),
    "another broker of the topic": lambda s: s.tables.register(broker("10.0.0.7:1", name="broker-b"), 0),
    "a changed topic": lambda s: s.tables.register(
        broker(acting=True, counter=2, topics=[topic("T1", queues=9), "T2"]), 0
    ),
    "a zone": lambda s: s.tables.register(broker(acting=True, zone="z"), 0),
    "no acting masters any more": lambda s: s.tables.register(broker(acting=False), 0),
    "other filter servers": lambda s: s.tables.register(broker(acting=True, filters=["f:2"]), 0),
    "no filter servers": lambda s: s.tables.register(broker(acting=True, filters=[]), 0),
    "a queue mapping": lambda s: s.tables.register(
        broker(acting=True, counter=2, mappings=[mapping("T1")]), 0
    ),
    "an ignored master that was a slave": lambda s: s.tables.register(
        broker(A2, 0, state=-1, acting=True), 0
    ),
    "an ignored master in another zone": lambda s: s.tables.register(
        broker("10.0.0.7:1", state=-1, zone="z", acting=True), 0
    ),
    "a refused single topic in another zone": lambda s: s.tables.register(
        broker("10.0.0.7:1", 5, topics=["T9"], zone="z", acting=True), 0
    ),
    "the slave leaves": lambda s: s.tables.unregister([BrokerLeft(CLUSTER, NAME, A2, 1)]),
    "the master leaves": lambda s: s.tables.unregister([BrokerLeft(CLUSTER, NAME, A1, 0)]),
    "everyone leaves": lambda s: s.tables.unregister(
        [BrokerLeft(CLUSTER, NAME, A1, 0), BrokerLeft(CLUSTER, NAME, A2, 1)]
    ),
    "writes are stopped": lambda s: s.tables.wipe_write_perm(NAME),
    "the topic is deleted": lambda s: s.tables.delete_topic("T1", None),
    "the topic is deleted in its cluster": lambda s: s.tables.delete_topic("T1", CLUSTER),
    "the topic is registered alone": lambda s: s.tables.register_topic("T1", [QueueData(NAME, 1, 1, 6)]),
    "the order of the topic is deleted": delete_order,
    "orders are not shown any more": lambda s: change_setting(s, "orderMessageEnable=false"),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("standard", [True, False], ids=["standard", "legacy"])
def test_a_change_is_seen_by_the_next_look_up(what: str, standard: bool) -> None:
    """N7: whatever changes, no look-up gets the route of before."""
    state = prepared()
    before = answer(state, standard=standard)
    assert before is not None
    CHANGES[what](state)
    after = answer(state, standard=standard)
    assert (None if after is None else after.body) == fresh(state, standard=standard)
    assert after is None or after.body != before.body, "this was meant to be a change"


def test_acting_masters_are_seen_when_they_are_switched_on() -> None:
    """N7: a setting changes what routes look like."""
    state = prepared()
    state.tables.unregister([BrokerLeft(CLUSTER, NAME, A1, 0)])
    with_acting = answer(state)
    change_setting(state, "supportActingMaster=false")
    without = answer(state)
    assert b'{"0":"10.0.0.2:10911"}' in text(with_acting)
    assert b'{"1":"10.0.0.2:10911"}' in text(without)


def test_an_order_is_seen_when_it_is_put() -> None:
    """N7, N8: a value of the order namespace shows in the route of its topic."""
    state = prepared()
    delete_order(state)
    assert b"orderTopicConf" not in (fresh(state) or b"")
    before = answer(state)
    put_order(state)
    after = answer(state)
    assert b"orderTopicConf" not in text(before)
    assert b'"orderTopicConf":"broker-a:9"' in text(after)


NOTHING_CHANGES: dict[str, Callable[[NamesrvState], object]] = {
    "nothing happens": lambda s: None,
    "the brokers register again": lambda s: [s.tables.register(each, 30_000) for each in (MASTER, SLAVE)],
    "a broker says that it is alive": lambda s: s.tables.heard_of((CLUSTER, A1), 30_000),
    "a topic of somebody else is deleted": lambda s: s.tables.delete_topic("T2", None),
    "an unknown broker leaves": lambda s: s.tables.unregister([STRANGER]),
    "a writable broker is made writable": lambda s: s.tables.add_write_perm(NAME),
    "another topic is looked up": lambda s: answer(s, "T2"),
    "the same topic is looked up in the other shape": lambda s: answer(s, standard=False),
}


@pytest.mark.parametrize("what", NOTHING_CHANGES)
def test_the_same_bytes_are_handed_out_while_nothing_changes(what: str) -> None:
    """N7: an answer is encoded once."""
    state = prepared()
    before = answer(state)
    assert before is not None
    NOTHING_CHANGES[what](state)
    after = answer(state)
    assert after is before
    assert after.body is before.body


def test_topics_that_do_not_exist_take_no_place() -> None:
    """N7: asking for names at random does not fill the memory."""
    state = prepared()
    for number in range(100):
        assert answer(state, f"no-{number}") is None
    assert answer(state) is not None
    assert len(state.routes) == 1
