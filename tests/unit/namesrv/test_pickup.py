"""What a client sees of the tables: routes, acting masters, zones (N7)."""

from __future__ import annotations

import pytest

from cometmq.namesrv.routes import only_zone, pick_up_route
from tests.unit.namesrv.kit import A1, A2, A3, NAME, READ, Registry, broker, mapping, topic

MEMBERS = f"rmq_sys_SYNC_BROKER_MEMBER_{NAME}"


def test_a_route_has_the_queues_and_the_brokers_of_its_topic_only() -> None:
    """N7: and the filter servers of those brokers."""
    registry = Registry(
        broker(A1, topics=["T1", "T2"], filters=["f:1"]),
        broker(A2, 1, filters=["f:2"]),
        broker(A3, name="broker-b", topics=["T2", "T3"], filters=["f:3"]),
    )
    route = registry.route("T1")
    assert [queues.broker_name for queues in route.queue_datas] == [NAME]
    assert [each.broker_addrs for each in route.broker_datas] == [{0: A1, 1: A2}]
    assert route.filter_server_table == {A1: ["f:1"], A2: ["f:2"]}
    assert {each.broker_name for each in registry.route("T2").broker_datas} == {NAME, "broker-b"}


def test_an_unknown_topic_has_no_route() -> None:
    """N7: nor has one that was deleted."""
    registry = Registry(broker())
    assert pick_up_route(registry, "T9", acting_master=False) is None
    registry.delete_topic("T1", None)
    assert pick_up_route(registry, "T1", acting_master=False) is None


def test_a_topic_of_brokers_that_nobody_knows_has_no_route() -> None:
    """N7: queues without a broker lead nowhere."""
    registry = Registry(broker())
    del registry.brokers[NAME]
    assert pick_up_route(registry, "T1", acting_master=False) is None


def test_the_route_of_a_static_topic_tells_where_its_logical_queues_are() -> None:
    """N7: of an ordinary topic it says nothing about them."""
    registry = Registry(broker(topics=["S", "T1"], mappings=[mapping("S")]))
    assert registry.route("S").topic_queue_mapping_by_broker == {NAME: mapping("S")}
    assert registry.route("T1").topic_queue_mapping_by_broker is None


def test_a_route_is_a_copy() -> None:
    """N3: who changes what was handed out does not change the tables."""
    registry = Registry(broker(A2, 1, acting=True))
    registry.route("T1", acting_master=True)
    registry.route("T1").broker_datas[0].broker_addrs.clear()
    assert registry.addresses() == {1: A2}


def without_master(*, acting: bool = True, perm: int = READ) -> Registry:
    topics = [topic("T1", perm=perm), topic(MEMBERS, perm=perm)]
    return Registry(broker(A2, 1, acting=acting, topics=topics), broker(A3, 2, acting=acting, topics=topics))


def test_the_first_slave_acts_as_master_of_a_group_that_lost_its_own() -> None:
    """N7: clients that know no acting masters then find a master, read-only."""
    route = without_master().route("T1", acting_master=True)
    assert route.broker_datas[0].broker_addrs == {0: A2, 2: A3}
    assert route.queue_datas[0].perm == READ


def test_nobody_acts_as_master_where_that_is_switched_off() -> None:
    """N7: by the name server, or by the broker."""
    assert without_master().route("T1", acting_master=False).broker_datas[0].broker_addrs == {1: A2, 2: A3}
    registry = without_master(acting=False)
    assert registry.route("T1", acting_master=True).broker_datas[0].broker_addrs == {1: A2, 2: A3}


def test_nobody_acts_as_master_of_a_topic_that_may_be_written() -> None:
    """N7: a slave must never be written to."""
    registry = without_master()
    registry.add_write_perm(NAME)
    assert registry.route("T1", acting_master=True).broker_datas[0].broker_addrs == {1: A2, 2: A3}


def test_brokers_see_the_members_of_their_group_as_they_are() -> None:
    """N7: the routes by which brokers learn them are never rewritten."""
    assert without_master().route(MEMBERS, acting_master=True).broker_datas[0].broker_addrs == {1: A2, 2: A3}


def test_a_master_is_not_replaced() -> None:
    """N7: an acting master is for a group without one."""
    registry = Registry(
        broker(A1, acting=True, topics=[topic("T1", perm=READ), "T2"]), broker(A2, 1, acting=True)
    )
    assert registry.route("T1", acting_master=True).broker_datas[0].broker_addrs == {0: A1, 1: A2}


def zoned() -> Registry:
    return Registry(
        broker(A1, zone="East", filters=["f:1"]),
        broker(A2, name="broker-b", zone="West", filters=["f:2"]),
        broker(A3, 1, "broker-c", zone="West"),
    )


@pytest.mark.parametrize("zone", ["east", "EAST"])
def test_a_zone_sees_its_brokers_and_those_whose_master_is_down(zone: str) -> None:
    """N7: zone names are compared without regard to case; queues and filter servers go with their broker."""
    route = only_zone(zoned().route("T1"), zone)
    assert {each.broker_name for each in route.broker_datas} == {NAME, "broker-c"}
    assert {each.broker_name for each in route.queue_datas} == {NAME, "broker-c"}
    assert route.filter_server_table == {A1: ["f:1"]}


def test_a_zone_without_brokers_gets_an_empty_route() -> None:
    """N7: also when the brokers say nothing about their zone."""
    route = only_zone(Registry(broker(filters=["f:1"])).route("T1"), "North")
    assert (route.broker_datas, route.queue_datas, route.filter_server_table) == ([], [], {})
