"""How brokers leave the tables, and how their silence is noticed (N5, N6)."""

from __future__ import annotations

import pytest

from cometmq.namesrv.tables import BrokerLeft, MinIdChange
from tests.unit.namesrv.kit import A1, A2, A3, CLUSTER, NAME, READ, READ_WRITE, Registry, broker

# Removal.


def test_the_last_member_takes_everything_with_it() -> None:
    """N6: topics, names, cluster, live entry and filter servers go together."""
    registry = Registry(broker(filters=["f:1"]))
    registry.leave(broker())
    assert registry.topics == {}
    assert registry.brokers == {}
    assert registry.clusters == {}
    assert registry.live == {}
    assert registry.filter_servers == {}
    assert registry.brokers_of("connection of 10.0.0.1:10911") == []


def test_other_brokers_keep_their_queues_and_their_cluster() -> None:
    """N6: a topic goes with its last broker, a cluster too."""
    registry = Registry(broker(topics=["T1", "T2"]), broker(A2, name="broker-b", topics=["T2", "T3"]))
    registry.leave(broker())
    assert {name: set(queues) for name, queues in registry.topics.items()} == {
        "T2": {"broker-b"},
        "T3": {"broker-b"},
    }
    assert registry.clusters == {CLUSTER: {"broker-b"}}


def test_an_address_is_removed_whatever_id_the_request_names() -> None:
    """N6: the address decides, not the id."""
    registry = Registry(broker(A1), broker(A2, 1))
    registry.unregister([BrokerLeft(CLUSTER, NAME, A2, 7)])
    assert registry.addresses() == {0: A1}


def test_removing_an_unknown_broker_changes_nothing() -> None:
    """N6: neither an unknown name nor an unknown address of a known name is an error."""
    registry = Registry(broker())
    assert registry.unregister([BrokerLeft(CLUSTER, "nobody", A3, 0)]) == []
    assert registry.heard.take() == (set(), False)
    assert registry.unregister([BrokerLeft(CLUSTER, NAME, A3, 5)]) == []
    assert registry.addresses() == {0: A1}
    assert set(registry.topics) == {"T1", "T2"}


def test_a_batch_that_empties_a_group_is_one_removal() -> None:
    """N6: master and slave in one batch: no notice, no topics, nobody left."""
    master, slave = broker(A1, acting=True), broker(A2, 1, acting=True)
    registry = Registry(master, slave)
    assert registry.leave(master, slave) == []
    assert registry.brokers == {}
    assert registry.topics == {}


def test_a_batch_over_several_groups_treats_each_by_what_is_left_of_it() -> None:
    """N6: one group ends, another goes on without its master, a third keeps it."""
    gone = broker(A1)
    reduced = broker(A2, name="broker-b", acting=True)
    rest = broker(A3, 1, "broker-b", acting=True)
    kept = broker("10.0.0.4:10911", name="broker-c", acting=True)
    left = broker("10.0.0.5:10911", 1, "broker-c", acting=True)
    registry = Registry(gone, reduced, rest, kept, left)
    changes = registry.leave(gone, reduced, left)
    assert set(registry.brokers) == {"broker-b", "broker-c"}
    assert set(registry.topics["T1"]) == {"broker-b", "broker-c"}
    assert registry.perm("T1", "broker-b") == READ
    assert registry.perm("T1", "broker-c") == READ_WRITE
    assert [change.broker_name for change in changes] == ["broker-b"]


def test_a_listed_name_without_addresses_is_removed_by_an_unregistration() -> None:
    """N6: what a refused first registration left behind can be cleaned up."""
    registry = Registry()
    assert registry.register(broker(topics=["T1"]), 0) is None
    registry.leave(broker())
    assert registry.brokers == {}
    assert registry.clusters == {}


# Notices of a new smallest id.


def test_the_members_learn_that_their_smallest_id_left() -> None:
    """N6: with the address that went and the one that is the smallest now."""
    master, slave, third = broker(A1, acting=True), broker(A2, 1, acting=True), broker(A3, 2, acting=True)
    registry = Registry(master, slave, third)
    assert registry.leave(master) == [MinIdChange(NAME, {1: A2, 2: A3}, offline_addr=A1)]


def test_the_departure_of_a_larger_id_is_no_news() -> None:
    """N6: the smallest id stays."""
    registry = Registry(broker(A1, acting=True), broker(A2, 1, acting=True))
    assert registry.leave(broker(A2, 1)) == []


def test_groups_without_acting_masters_are_told_nothing() -> None:
    """N6: only they act on the news."""
    registry = Registry(broker(A1, acting=False), broker(A2, 1, acting=False))
    assert registry.leave(broker(A1)) == []


def test_of_two_departures_in_a_batch_the_last_one_counts() -> None:
    """N6: the notice shows the group as it is after the whole batch."""
    brokers = [broker(A1, acting=True), broker(A2, 1, acting=True), broker(A3, 2, acting=True)]
    registry = Registry(*brokers)
    assert registry.leave(*brokers[:2]) == [MinIdChange(NAME, {2: A3}, offline_addr=A2)]


# Liveness.


@pytest.mark.parametrize(("timeout_ms", "effective_ms"), [(None, 120_000), (10_000, 10_000)])
def test_a_broker_expires_after_its_time_and_not_at_it(timeout_ms: int | None, effective_ms: int) -> None:
    """N6: 120 s, or what the broker said."""
    registry = Registry()
    registry.come(broker(timeout_ms=timeout_ms), now_ms=1_000)
    assert registry.expired(1_000 + effective_ms) == []
    assert [key for key, _ in registry.expired(1_001 + effective_ms)] == [(CLUSTER, A1)]


def test_a_sign_of_life_puts_the_expiry_off() -> None:
    """N5: a heartbeat and a question for the data version are such signs."""
    registry = Registry(broker())
    registry.heard_of((CLUSTER, A1), 100_000)
    assert registry.expired(220_000) == []
    assert len(registry.expired(220_001)) == 1


def test_a_sign_of_life_registers_nobody() -> None:
    """N5: an unknown broker stays unknown."""
    registry = Registry()
    registry.heard_of((CLUSTER, A1), 5)
    assert registry.live == {}
    assert registry.data_version((CLUSTER, A1)) is None


def test_an_expired_broker_leaves_under_its_name_and_id() -> None:
    """N6: the scan finds out whom to remove."""
    registry = Registry(broker(A1), broker(A2, 3))
    assert registry.leaving((CLUSTER, A2)) == BrokerLeft(CLUSTER, NAME, A2, 3)


def test_a_live_entry_whose_address_was_replaced_is_forgotten_with_its_filter_servers() -> None:
    """N6: no entry stays behind for good, and no route goes with it."""
    registry = Registry(broker(A1, filters=["f:1"]), broker(A2, counter=2))
    assert registry.leaving((CLUSTER, A1)) is None
    assert (CLUSTER, A1) not in registry.live
    assert registry.filter_servers == {}
    assert registry.addresses() == {0: A2}
    assert set(registry.topics) == {"T1", "T2"}


def test_an_entry_of_another_cluster_does_not_remove_a_broker() -> None:
    """N6: the same address and name in another cluster is somebody else's."""
    registry = Registry(broker(A1), broker(A1, cluster="Other", counter=2))
    assert registry.leaving(("Other", A1)) is None
    assert registry.addresses() == {0: A1}
    assert registry.leaving(("Nowhere", "10.9.9.9:1")) is None


def test_all_brokers_of_a_connection_are_found() -> None:
    """N6: several brokers of one process may share a connection."""
    registry = Registry(broker(A1, channel="shared"), broker(A2, name="broker-b", channel="shared"))
    assert sorted(registry.brokers_of("shared")) == [(CLUSTER, A1), (CLUSTER, A2)]
    registry.leave(broker(A1))
    assert registry.brokers_of("shared") == [(CLUSTER, A2)]
