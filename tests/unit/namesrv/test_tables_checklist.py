"""The ten cases that name servers get wrong."""

from __future__ import annotations

import pytest

from cometmq.namesrv.routes import pick_up_route
from tests.unit.namesrv.kit import A1, A2, CLUSTER, NAME, READ, READ_WRITE, Registry, broker


def test_case_1_a_slave_that_becomes_master_at_its_address_has_one_entry() -> None:
    """N4: the address loses its former id."""
    registry = Registry(broker(A1, 1))
    registry.come(broker(A1, 0, counter=2))
    assert registry.addresses() == {0: A1}


def test_case_2_a_master_at_a_new_address_replaces_the_old_one_and_its_routes_stay() -> None:
    """N4, N6: when the old address falls silent, its live entry goes and nothing else does."""
    registry = Registry(broker(A1))
    registry.come(broker(A2, counter=2), now_ms=60_000)
    assert registry.addresses() == {0: A2}
    assert (CLUSTER, A1) in registry.live

    expired = registry.expired(120_001)
    assert [key for key, _ in expired] == [(CLUSTER, A1)]
    assert registry.leaving((CLUSTER, A1)) is None
    assert (CLUSTER, A1) not in registry.live, "the stale entry is deleted"
    assert registry.addresses() == {0: A2}
    assert registry.route("T1").broker_datas[0].broker_addrs == {0: A2}


def test_case_3_a_master_of_an_older_epoch_is_ignored() -> None:
    """N4: the newer master stays, the older one is not alive, and it is told nothing."""
    registry = Registry(broker(A1, state=5))
    told = registry.come(broker(A2, state=4, topics=["T8", "T9"]))
    assert (told.master_addr, told.ha_server_addr, told.min_id_change) == (None, None, None)
    assert registry.addresses() == {0: A1}
    assert (CLUSTER, A2) not in registry.live
    assert "T8" not in registry.topics


@pytest.mark.parametrize("state", [5, 6], ids=["same epoch", "newer epoch"])
def test_case_3_a_master_of_the_same_or_a_newer_epoch_takes_over(state: int) -> None:
    """N4: the last writer wins unless the epoch says otherwise."""
    registry = Registry(broker(A1, state=5))
    registry.come(broker(A2, state=state))
    assert registry.addresses() == {0: A2}


def test_case_3_an_old_epoch_is_compared_with_a_living_broker_only() -> None:
    """N4: an address without a live entry has no epoch."""
    registry = Registry(broker(A1, state=5))
    del registry.live[(CLUSTER, A1)]
    registry.come(broker(A2, state=1))
    assert registry.addresses() == {0: A2}


def test_case_4_a_first_registration_of_a_single_topic_is_refused() -> None:
    """N4: the names stay listed, without an address."""
    registry = Registry()
    assert registry.register(broker(topics=["T1"]), 0) is None
    assert registry.addresses() == {}
    assert registry.clusters == {CLUSTER: {NAME}}
    assert registry.live == {}
    assert registry.topics == {}
    registry.come(broker())
    assert registry.register(broker(topics=["T9"], counter=2), 0) is not None, "later, one topic is a change"


def test_case_4_a_registration_without_topics_is_not_refused() -> None:
    """N4: only exactly one topic looks like a change of a broker that is not known."""
    assert Registry(broker(topics=[])).addresses() == {0: A1}


@pytest.mark.parametrize(
    ("acting", "perms"),
    [(None, []), (False, [READ_WRITE]), (True, [READ])],
    ids=["older release", "no acting master", "acting master"],
)
def test_case_5_a_slave_before_its_master(acting: bool | None, perms: list[int]) -> None:
    """N4: topics appear if it is a newer slave; read-only if it acts as master."""
    registry = Registry(broker(A2, 1, acting=acting))
    assert registry.addresses() == {1: A2}
    assert [registry.perm(name) for name in registry.topics if name == "T1"] == perms
    if perms:
        assert registry.route("T1").broker_datas[0].broker_addrs == {1: A2}


def test_case_6_a_late_close_of_the_old_connection_removes_nothing() -> None:
    """N6: the broker lives on the connection on which it registered last."""
    registry = Registry(broker(channel="old"))
    registry.come(broker(channel="new"))
    assert registry.brokers_of("old") == []
    assert registry.brokers_of("new") == [(CLUSTER, A1)]


def test_case_8_topics_stay_when_one_of_two_members_leaves() -> None:
    """N6: and they stay writable while there is a master."""
    master, slave = broker(A1, acting=True), broker(A2, 1, acting=True)
    registry = Registry(master, slave)
    registry.leave(slave)
    assert registry.addresses() == {0: A1}
    assert registry.perm("T1") == READ_WRITE


@pytest.mark.parametrize(("acting", "perm"), [(True, READ), (False, READ_WRITE)])
def test_case_8_without_its_master_a_group_with_acting_masters_is_read_only(acting: bool, perm: int) -> None:
    """N6: the write permission goes only where a slave may act as master."""
    master, slave = broker(A1, acting=acting), broker(A2, 1, acting=acting)
    registry = Registry(master, slave)
    registry.leave(master)
    assert registry.addresses() == {1: A2}
    assert registry.perm("T1") == perm


def test_case_10_filter_servers_are_removed_by_an_empty_list_and_kept_by_none() -> None:
    """N4: None says nothing about them."""
    key = (CLUSTER, A1)
    registry = Registry(broker(filters=["f:1"]))
    registry.come(broker(filters=None))
    assert registry.filter_servers == {key: ["f:1"]}
    registry.come(broker(filters=[]))
    assert registry.filter_servers == {}
    registry.come(broker(filters=None))
    assert registry.filter_servers == {}


def test_an_ignored_registration_that_gave_up_an_address_is_seen_in_the_routes() -> None:
    """N4, N7: a slave that claims to be a master of an older epoch has left its place as a slave."""
    registry = Registry(broker(A1, state=5), broker(A2, 1, state=5))
    registry.come(broker(A2, 0, state=4))
    assert registry.addresses() == {0: A1}
    assert registry.heard.take() == (set(), True)
    route = pick_up_route(registry, "T1", acting_master=False)
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: A1}
