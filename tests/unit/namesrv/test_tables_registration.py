"""How a broker enters the tables (N3, N4)."""

from __future__ import annotations

import pytest

from cometmq.model.route import QueueData
from cometmq.model.topic import DataVersion
from cometmq.namesrv.tables import MinIdChange
from tests.unit.namesrv.kit import (
    A1,
    A2,
    A3,
    CLUSTER,
    NAME,
    READ,
    READ_WRITE,
    Registry,
    broker,
    mapping,
    topic,
)


def test_a_first_registration_fills_all_five_tables() -> None:
    """N3, N4: topics, brokers, clusters, live brokers and filter servers know the broker."""
    registry = Registry()
    registry.come(broker(filters=["10.0.0.9:1"], zone="z1"), now_ms=7)
    assert registry.topics["T1"] == {NAME: QueueData(NAME, 4, 4, READ_WRITE, 0)}
    assert registry.addresses() == {0: A1}
    assert (registry.brokers[NAME].cluster, registry.brokers[NAME].zone_name) == (CLUSTER, "z1")
    assert registry.clusters == {CLUSTER: {NAME}}
    live = registry.live[(CLUSTER, A1)]
    assert (live.last_update_ms, live.timeout_ms, live.ha_server_addr) == (7, 120_000, "10.0.0.1:10912")
    assert registry.filter_servers == {(CLUSTER, A1): ["10.0.0.9:1"]}


def test_a_broker_may_say_how_long_its_silence_is_to_be_endured() -> None:
    """N4: the time-out of a registration replaces the default."""
    registry = Registry(broker(timeout_ms=10_000))
    assert registry.live[(CLUSTER, A1)].timeout_ms == 10_000


def test_the_zone_of_the_last_registration_counts_also_when_it_has_none() -> None:
    """N4: a registration without a zone takes the zone away."""
    registry = Registry(broker(zone="z1"))
    registry.come(broker())
    assert registry.brokers[NAME].zone_name is None


@pytest.mark.parametrize(("said", "is_enabled"), [(None, False), (False, False), (True, True)])
def test_only_a_broker_that_says_so_has_acting_masters(said: bool | None, is_enabled: bool) -> None:
    """N4: a broker of an older release says nothing about it."""
    assert Registry(broker(acting=said)).brokers[NAME].enable_acting_master is is_enabled


def test_an_unchanged_data_version_leaves_known_topics_as_they_are() -> None:
    """N4: the broker's own permission comes back only with a changed version."""
    registry = Registry(broker())
    registry.wipe_write_perm(NAME)
    registry.come(broker())
    assert registry.perm("T1") == READ
    registry.come(broker(counter=2))
    assert registry.perm("T1") == READ_WRITE


def test_a_topic_that_is_missing_is_taken_in_even_if_the_data_version_is_unchanged() -> None:
    """N4: a partial registration announces a new topic under the version of the whole table."""
    registry = Registry(broker())
    registry.delete_topic("T2", None)
    registry.come(broker())
    assert set(registry.topics) == {"T1", "T2"}


def test_a_topic_is_extended_by_a_broker_that_is_new_in_it() -> None:
    """N4: the same version, but the topic did not know this broker."""
    registry = Registry(broker(topics=["T1", "T2", "T3"]), broker(A2, name="broker-b", topics=["T1", "T2"]))
    registry.come(broker(A2, name="broker-b", topics=["T3", "T1"]))
    assert set(registry.topics["T3"]) == {NAME, "broker-b"}


def test_the_data_version_is_compared_with_the_one_before_this_registration() -> None:
    """N4: what a registration brings is compared with what the live table had until now."""
    registry = Registry(broker(topics=[topic("T1", queues=4), topic("T2")]))
    registry.come(broker(topics=[topic("T1", queues=8), topic("T2")], counter=2))
    assert registry.topics["T1"][NAME].read_queue_nums == 8
    assert registry.data_version((CLUSTER, A1)) == DataVersion(0, 1_700_000_000_000, 2)


@pytest.mark.parametrize(
    ("known", "new"),
    [
        (DataVersion(0, 5, 1), DataVersion(1, 5, 1)),
        (DataVersion(0, 5, 1), DataVersion(0, 6, 1)),
        (DataVersion(0, 5, 1), DataVersion(0, 5, 2)),
    ],
    ids=["state version", "timestamp", "counter"],
)
def test_a_data_version_differs_in_any_of_its_parts(known: DataVersion, new: DataVersion) -> None:
    """N4, N5: all three numbers have to be equal."""
    assert known != new
    first, second = broker(), broker(topics=[topic("T1", perm=READ), topic("T2")])
    first.data_version, second.data_version = known, new
    registry = Registry(first)
    registry.come(second)
    assert registry.perm("T1") == READ


def test_a_partial_registration_deletes_nothing() -> None:
    """N4: a topic that a registration leaves out is not gone."""
    registry = Registry(broker(topics=["T1", "T2", "T3"]))
    registry.come(broker(topics=["T3"], counter=2))
    assert set(registry.topics) == {"T1", "T2", "T3"}


OWN = (NAME,)
"""The topic that every broker makes by itself, so that only a registration of everything has it."""


def test_with_deletion_switched_on_a_registration_of_everything_is_the_whole_truth() -> None:
    """N4: deleteTopicWithBrokerRegistration drops the broker's queues, and topics that have none left."""
    others = ("broker-b",)
    registry = Registry(
        broker(topics=["T1", "T2", "T3", *OWN]), broker(A2, name="broker-b", topics=["T1", "T2", *others])
    )
    registry.come(broker(topics=["T3", "T4", *OWN], counter=2), delete_missing=True)
    found = {name: set(queues) for name, queues in registry.topics.items() if name.startswith("T")}
    assert found == {"T1": {"broker-b"}, "T2": {"broker-b"}, "T3": {NAME}, "T4": {NAME}}
    registry.come(broker(A2, name="broker-b", topics=["T1", "T5", *others], counter=2), delete_missing=True)
    assert "T2" not in registry.topics


def test_a_registration_of_what_has_changed_deletes_nothing() -> None:
    """N4: also with deletion switched on; Apache's brokers, and ours, tell a new topic this way."""
    registry = Registry(broker(topics=["T1", "T2", "T3", *OWN]))
    for changed in (["T4"], ["T1", "T2"], [NAME]):
        registry.come(broker(topics=changed, counter=2), delete_missing=True)
        assert set(registry.topics) == {"T1", "T2", "T3", "T4", *OWN}


def test_a_registration_in_several_parts_deletes_nothing_of_the_other_parts() -> None:
    """N4: with enableSplitRegistration each part comes by itself, in any order, again and again."""
    parts = [["T1", *OWN], ["T2"], ["T3", "T4"]]
    for order in (parts, parts[::-1]):
        registry = Registry(*(broker(topics=part) for part in order))
        for counter in (1, 2, 3):
            for part in order:
                registry.come(broker(topics=part, counter=counter), delete_missing=True)
                assert set(registry.topics) == {"T1", "T2", "T3", "T4", *OWN}
    for counter in (4, 5, 6):  # T3 and T4 are gone
        for part in (["T1", *OWN], ["T2"]):
            registry.come(broker(topics=part, counter=counter), delete_missing=True)
    assert set(registry.topics) == {"T1", "T2", *OWN}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([[*OWN, "T1", "T2"], ["T3"]], [["T0", *OWN, "T1"], ["T2", "T3"]], id="out-of-it"),
        pytest.param([["T1", "T2"], [*OWN, "T3"]], [["T2", *OWN], ["T1", "T3"]], id="behind-it"),
        pytest.param([["T1", "T2", "T3"], [*OWN, "T4"]], [["T2", "T3", *OWN], ["T1", "T4"]], id="it-first"),
    ],
)
def test_a_topic_that_moves_to_another_part_stays(before: list[list[str]], after: list[list[str]]) -> None:
    """N4: parts are cut anew for each registration, so a new topic moves others after the part for all."""
    registry = Registry(*(broker(topics=part) for part in before))
    topics = set(registry.topics)
    for counter, part in enumerate([*before, *after, *before], start=2):
        registry.come(broker(topics=part, counter=counter), delete_missing=True)
        assert registry.topics.keys() >= topics


def test_a_topic_that_was_told_by_itself_goes_when_the_broker_has_it_no_more() -> None:
    """N4: the third registration of everything without it deletes it."""
    registry = Registry(broker(topics=["T1", *OWN]))
    registry.register_topic("T2", [QueueData(NAME, 4, 4, 6)])
    for _ in range(2):
        registry.come(broker(topics=["T1", *OWN], counter=2), delete_missing=True)
        assert "T2" in registry.topics, "it may have come after the broker wrote its list"
    registry.come(broker(topics=["T1", *OWN], counter=2), delete_missing=True)
    assert "T2" not in registry.topics


def test_static_topics_are_not_deleted_by_a_registration() -> None:
    """N4: a registration with queue mappings deletes nothing."""
    registry = Registry(broker(topics=["T1", "T2", "T3", *OWN]))
    registry.come(broker(topics=["T1", "T2", *OWN], counter=2, mappings=[mapping("S")]), delete_missing=True)
    assert "T3" in registry.topics


def test_a_slave_deletes_no_topics() -> None:
    """N4: only who speaks for the topics may take them away."""
    registry = Registry(broker(topics=["T1", "T2", "T3", *OWN]))
    registry.come(broker(A2, 1, topics=["T1", "T2", *OWN]), delete_missing=True)
    assert "T3" in registry.topics


def test_queue_mappings_are_kept_by_topic_and_broker_and_follow_the_data_version() -> None:
    """N4: where the logical queues of a static topic are."""
    registry = Registry(broker(mappings=[mapping("S", epoch=1)]))
    registry.come(broker(mappings=[mapping("S", epoch=2)]))
    assert registry.mappings["S"][NAME].epoch == 1, "the data version did not change"
    registry.come(broker(mappings=[mapping("S", epoch=2)], counter=2))
    assert registry.mappings["S"][NAME].epoch == 2


def test_queue_mappings_outlive_their_broker() -> None:
    """N4: static topics are never cleaned up."""
    master = broker(topics=["S", "T1"], mappings=[mapping("S")])
    registry = Registry(master)
    registry.leave(master)
    assert registry.mappings["S"] == {NAME: mapping("S")}


def test_only_the_master_and_a_newer_first_slave_speak_for_the_topics() -> None:
    """N4: with a master there, nothing that a slave says about topics counts."""
    registry = Registry(broker())
    registry.come(broker(A2, 1, topics=["T1", "T9"], counter=9))
    assert "T9" not in registry.topics
    registry = Registry(broker(A2, 1))
    registry.come(broker(A3, 2, topics=["T1", "T9"], counter=9))
    assert "T9" not in registry.topics, "it is not the first slave"


def test_a_slave_of_an_older_release_speaks_for_no_topics_even_alone() -> None:
    """N4: it does not say whether it has acting masters."""
    assert Registry(broker(A2, 1, acting=None)).topics == {}


def test_a_master_is_told_nothing_and_a_slave_where_its_master_is() -> None:
    """N4: the address and the replication address of the master."""
    registry = Registry()
    told = registry.come(broker())
    assert (told.master_addr, told.ha_server_addr) == (None, None)
    told = registry.come(broker(A2, 1))
    assert (told.master_addr, told.ha_server_addr) == (A1, "10.0.0.1:10912")


def test_a_slave_is_not_sent_to_a_master_that_is_not_alive() -> None:
    """N4: a master's address without a live entry is of no use."""
    registry = Registry(broker())
    del registry.live[(CLUSTER, A1)]
    told = registry.come(broker(A2, 1))
    assert (told.master_addr, told.ha_server_addr) == (None, None)


def test_a_smaller_id_than_all_before_is_news_for_its_group() -> None:
    """N4: the members learn the new smallest id, its address and its replication address."""
    registry = Registry(broker(A2, 2), broker(A3, 3))
    told = registry.come(broker(A1, 1))
    assert told.min_id_change == MinIdChange(
        NAME, {1: A1, 2: A2, 3: A3}, offline_addr=None, ha_server_addr="10.0.0.1:10912"
    )


def test_the_first_member_of_a_group_and_a_larger_id_are_no_news() -> None:
    """N4: before the first one, 0 counts as the smallest id."""
    registry = Registry()
    assert registry.come(broker(A2, 2)).min_id_change is None
    assert registry.come(broker(A3, 3)).min_id_change is None
    assert registry.come(broker(A2, 2)).min_id_change is None


def test_two_clusters_with_the_same_broker_name_share_it() -> None:
    """N3: broker names are global; the first cluster's name stays, and both clusters list the broker."""
    registry = Registry(broker(), broker(A2, cluster="Other"))
    assert registry.brokers[NAME].cluster == CLUSTER
    assert registry.clusters == {CLUSTER: {NAME}, "Other": {NAME}}
    registry.leave(broker(A2, cluster="Other"))
    assert registry.clusters == {}, "a cluster lists no broker that is gone"


def test_an_unchanged_registration_reports_no_change() -> None:
    """N4, N7: cached routes stay."""
    registry = Registry(broker(filters=["f:1"], mappings=[mapping("S")]))
    registry.come(broker(filters=["f:1"], mappings=[mapping("S")]), now_ms=30_000)
    assert registry.heard.take() == (set(), False)
    registry.come(broker(filters=["f:1"], mappings=[mapping("S")], counter=2))
    assert registry.heard.take() == (set(), False), "another version of the same topics looks the same"


def test_registering_one_topic_of_registered_brokers() -> None:
    """N9: all brokers have to be known; a known topic keeps what came before the unknown broker."""
    registry = Registry(broker(), broker(A2, name="broker-b"))
    known, other, unknown = (QueueData(name, 3, 3, READ) for name in (NAME, "broker-b", "nobody"))
    registry.register_topic("NEW", [known, unknown])
    assert "NEW" not in registry.topics
    registry.register_topic("NEW", [known])
    assert registry.topics["NEW"] == {NAME: known}
    registry.register_topic("NEW", [other, unknown])
    assert registry.topics["NEW"] == {NAME: known, "broker-b": other}
    registry.register_topic("EMPTY", [])
    assert "EMPTY" not in registry.topics
