"""Topics, groups and offsets of a broker as plain tables (B2, B3, B9)."""

from __future__ import annotations

import pytest

from cometmq.broker.config import BrokerConfig
from cometmq.broker.groups.groups import Groups
from cometmq.broker.groups.offsets import ConsumerOffsets
from cometmq.broker.settings import Settings
from cometmq.broker.topics.names import refuse_group, refuse_topic
from cometmq.broker.topics.topics import Topics
from cometmq.model.subscription import SubscriptionGroupConfig
from cometmq.model.topic import DataVersion, TopicConfig
from cometmq.store.tables.tables import ConsumerOffsetTable, SubscriptionGroupTable, TopicTable
from cometmq.testing import VirtualClock

PEER = "127.0.0.1:5000"


def topics(**settings: object) -> Topics:
    config = BrokerConfig(broker_name="broker-a", **settings)  # type: ignore[arg-type]
    return Topics(Settings(config), VirtualClock())


def shape(topic: TopicConfig | None) -> tuple[int, int, int] | None:
    return None if topic is None else (topic.read_queue_nums, topic.write_queue_nums, topic.perm)


# Topics


def test_with_so_many_topics_none_is_made_for_a_message() -> None:
    """B2: those that are there stay, an administrator can make more, and a group has its retry topic."""
    table = topics(max_auto_create_topics=15, max_topics=18)
    made = [table.create_by_default(f"topic-{number}", "TBW102", 4, PEER) for number in range(5)]
    assert [each is not None for each in made] == [True, True, False, False, False]
    assert table.has_room_for("new-1", "new-2", "new-3", "topic-0")
    assert not table.has_room_for("new-1", "new-2", "new-3", "new-4")
    retries = [table.ensure_retry_topic(f"group-{number}", 1) for number in range(5)]
    assert [each is not None for each in retries] == [True, True, True, False, False]
    assert table.ensure_retry_topic("group-0", 1) is retries[0]
    assert table.ensure_dead_letter_topic("group-0").topic_name == "%DLQ%group-0"


def test_with_so_many_groups_none_is_made_for_a_consumer() -> None:
    config = BrokerConfig(broker_name="broker-a", max_auto_create_subscription_groups=20)
    groups = Groups(Settings(config), VirtualClock())
    for number in range(40):
        groups.find(f"group-{number}")
    assert len(groups.table) == 20
    assert groups.find("group-0") is not None
    assert groups.find("group-39") is None
    assert groups.has_room_for(["group-39"])


def test_a_broker_has_rocketmqs_system_topics() -> None:
    """B2: with their numbers of queues and permissions."""
    assert {name: shape(topic) for name, topic in topics().table.items()} == {
        "SELF_TEST_TOPIC": (1, 1, 6),
        "TBW102": (8, 8, 7),
        "BenchmarkTest": (1024, 1024, 6),
        "DefaultCluster": (16, 16, 7),
        "broker-a": (1, 1, 7),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 1, 6),
        "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 1, 6),
        "rmq_sys_wheel_timer": (1, 1, 6),
    }


def test_some_of_them_depend_on_the_settings() -> None:
    """B2."""
    table = topics(
        auto_create_topic_enable=False,
        cluster_topic_enable=False,
        broker_topic_enable=False,
        trace_topic_enable=True,
        msg_trace_topic_name="Traces",
    )
    assert table.get("TBW102") is None
    assert shape(table.get("DefaultCluster")) == (16, 16, 1)
    assert shape(table.get("broker-a")) == (1, 1, 1)
    assert shape(table.get("Traces")) == (1, 1, 6)


@pytest.mark.parametrize("name", ["TBW102", "broker-a", "rmq_sys_anything", "RMQ_SYS_TRACE_TOPIC"])
def test_system_topics_are_known_as_such(name: str) -> None:
    """B2: the built-in ones, and all with the system's prefix."""
    assert topics().is_system_topic(name)
    assert not topics().is_system_topic("Orders")


def test_every_change_makes_a_new_version_and_is_told() -> None:
    """B1, B2: one that changes nothing does not."""
    table = topics()
    told: list[list[str]] = []
    dirty: list[int] = []
    table.on_change.append(lambda changed: told.append([topic.topic_name for topic in changed]))
    table.on_dirty = lambda: dirty.append(1)
    before = table.data_version
    topic = TopicConfig("Orders", attributes={})
    assert table.update(topic)
    assert not table.update(topic)
    assert table.update_all([topic, TopicConfig("Others", attributes={})])
    assert table.delete("Orders")
    assert not table.delete("Orders")
    assert told == [["Orders"], ["Others"], []]
    assert len(dirty) == 3
    assert table.data_version.counter == before.counter + 3
    assert table.generation == 3


def test_the_file_wins_over_what_is_built_in() -> None:
    """B2: and its version is taken over."""
    table = topics()
    version = DataVersion(0, 123, 45)
    table.load(TopicTable(version, {"TBW102": TopicConfig("TBW102", 2, 2, 7)}))
    assert shape(table.get("TBW102")) == (2, 2, 7)
    assert table.data_version == version
    assert table.snapshot().topic_config_table == table.table
    table.load(None)
    assert table.data_version == version


def test_an_old_default_topic_is_not_inherited_from_when_that_is_switched_off() -> None:
    """B2: although the file still has it with its permission."""
    table = topics(auto_create_topic_enable=False)
    table.load(TopicTable(DataVersion(), {"TBW102": TopicConfig("TBW102", 8, 8, 7)}))
    assert table.create_by_default("Orders", "TBW102", 4, PEER) is None


@pytest.mark.parametrize(("client", "queues"), [(4, 4), (100, 8), (0, 0), (-5, 0)])
def test_a_new_topic_has_the_smaller_number_of_queues(client: int, queues: int) -> None:
    """B2."""
    made = topics().create_by_default("Orders", "TBW102", client, PEER)
    assert shape(made) == (queues, queues, 6)


def test_a_retry_topic_of_a_unit_is_marked() -> None:
    """B2."""
    table = topics()
    retry = table.ensure_retry_topic("billing", 1, has_unit_sub=True)
    assert retry is not None
    assert retry.topic_sys_flag == 2


def test_name_servers_make_topics_ordered_and_never_the_other_way() -> None:
    """B1: their table may be old or incomplete, and order that is lost cannot be repaired."""
    table = topics()
    table.update_all([TopicConfig("A", order=True, attributes={}), TopicConfig("B", attributes={})])
    table.apply_order_topics(["B", "unknown"])
    assert [table.table[name].order for name in "AB"] == [True, True]
    version = table.data_version
    table.apply_order_topics([])
    assert [table.table[name].order for name in "AB"] == [True, True]
    assert table.data_version == version, "nothing has changed"


@pytest.mark.parametrize("name", ["a", "A-Z_0", "%RETRY%g", "a|b", "x" * 127, "%DLQ%" + "x" * 250])
def test_legal_names(name: str) -> None:
    """B7."""
    assert refuse_topic(name) is None


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a/b", "ä", "x" * 121, "a\n"])
def test_illegal_names_of_groups(name: str) -> None:
    """B7."""
    assert (refuse_group(name) or "").startswith("The specified group")


# Groups


def test_a_group_is_made_by_the_first_who_asks() -> None:
    """B3: with the defaults; looking does not make it."""
    table = Groups(Settings(BrokerConfig()), VirtualClock())
    dirty: list[int] = []
    table.on_dirty = lambda: dirty.append(1)
    assert table.get("billing") is None
    assert table.find("billing") == SubscriptionGroupConfig("billing")
    assert table.find("billing") is table.get("billing")
    assert table.find("not.legal") is None
    assert dirty == [1]


def test_only_system_groups_are_made_when_that_is_switched_off() -> None:
    """B3: and not even those if the settings say so."""
    settings = Settings(BrokerConfig(auto_create_subscription_group=False))
    table = Groups(settings, VirtualClock())
    assert table.find("billing") is None
    assert table.find("CID_RMQ_SYS_NEW") is not None
    settings.broker = BrokerConfig(auto_create_subscription_group=False, enable_create_sys_group=False)
    assert table.find("CID_RMQ_SYS_OTHER") is None


def test_what_a_group_is_forbidden_goes_with_it() -> None:
    """B3: and no empty entries stay."""
    table = Groups(Settings(BrokerConfig()), VirtualClock())
    table.find("billing")
    table.forbid("billing", "Orders")
    table.forbid("billing", "Orders")
    table.forbid("billing", "Orders", 8)
    assert table.forbidden == {"billing": {"Orders": 12}}
    table.forbid("billing", "Orders", on=False)
    assert not table.is_forbidden("billing", "Orders")
    table.forbid("billing", "Orders", 8, on=False)
    assert table.forbidden == {}
    table.forbid("billing", "Orders")
    assert table.delete("billing")
    assert not table.delete("billing")
    assert table.forbidden == {}


def test_groups_are_loaded_over_the_built_in_ones() -> None:
    """B3."""
    table = Groups(Settings(BrokerConfig()), VirtualClock())
    saved = SubscriptionGroupTable(
        DataVersion(0, 1, 2),
        {"billing": {"Orders": 4}},
        {"TOOLS_CONSUMER": SubscriptionGroupConfig("TOOLS_CONSUMER", consume_enable=False)},
    )
    table.load(saved)
    tools = table.get("TOOLS_CONSUMER")
    assert tools is not None
    assert not tools.consume_enable
    assert table.is_forbidden("billing", "Orders")
    assert table.snapshot().data_version == DataVersion(0, 1, 2)


# Offsets


@pytest.fixture
def offsets() -> ConsumerOffsets:
    return ConsumerOffsets(Settings(BrokerConfig(consumer_offset_update_version_step=3)), VirtualClock())


def test_an_offset_is_what_was_committed_last(offsets: ConsumerOffsets) -> None:
    """B9: also if it goes back, which an administrator may want."""
    assert offsets.query("billing", "Orders", 0) == -1
    offsets.commit(PEER, "billing", "Orders", 0, 10)
    offsets.commit(PEER, "billing", "Orders", 0, 4)
    assert offsets.query("billing", "Orders", 0) == 4
    assert offsets.query("billing", "Orders", 1) == -1
    assert offsets.queues_of("billing", "Orders") == {0: 4}


def test_a_commit_of_the_same_offset_changes_nothing(offsets: ConsumerOffsets) -> None:
    """B9: nothing is saved for it."""
    offsets.commit(PEER, "billing", "Orders", 0, 10)
    offsets.is_dirty = False
    offsets.commit(PEER, "billing", "Orders", 0, 10)
    assert not offsets.is_dirty


def test_the_version_moves_every_few_commits(offsets: ConsumerOffsets) -> None:
    """B9: as often as the settings say."""
    for offset in range(7):
        offsets.commit(PEER, "billing", "Orders", 0, offset)
    assert offsets.data_version.counter == 2


def test_a_reset_counts_until_the_group_was_told(offsets: ConsumerOffsets) -> None:
    """B9: once a queue, whatever is committed meanwhile."""
    offsets.commit(PEER, "billing", "Orders", 0, 100)
    offsets.assign_reset("Orders", "billing", 0, 5)
    offsets.commit(PEER, "billing", "Orders", 0, 101)
    assert offsets.query("billing", "Orders", 0) == 5
    assert offsets.has_reset("Orders", "billing", 0)
    assert offsets.take_reset("Orders", "billing", 1) is None
    assert offsets.take_reset("Orders", "billing", 0) == 5
    assert offsets.take_reset("Orders", "billing", 0) is None
    assert offsets.query("billing", "Orders", 0) == 101


def test_a_reset_of_a_group_that_is_not_online_is_its_offset(offsets: ConsumerOffsets) -> None:
    """B9: nobody has to be told."""
    offsets.assign_reset("Orders", "billing", 0, 5)
    assert offsets.snapshot().offset_table == {"Orders@billing": {0: 5}}


def test_what_was_pulled_is_what_was_consumed_until_somebody_pulls(offsets: ConsumerOffsets) -> None:
    """B9."""
    offsets.commit(PEER, "billing", "Orders", 0, 10)
    assert offsets.query_pulled("billing", "Orders", 0) == 10
    offsets.pulled("billing", "Orders", 0, 42)
    assert offsets.query_pulled("billing", "Orders", 0) == 42
    assert offsets.query("billing", "Orders", 0) == 10


def test_groups_and_topics_are_found_by_each_other(offsets: ConsumerOffsets) -> None:
    """B9."""
    for group, topic, queue_id, offset in (
        ("a", "T1", 0, 5),
        ("b", "T1", 0, 3),
        ("b", "T1", 1, 9),
        ("b", "T2", 0, 1),
    ):
        offsets.commit(PEER, group, topic, queue_id, offset)
    assert offsets.topics_of_group("b") == {"T1", "T2"}
    assert offsets.groups_of_topic("T1") == {"a", "b"}
    assert offsets.min_offsets("T1") == {0: 3, 1: 9}
    assert offsets.min_offsets("T1", without=["b"]) == {0: 5}
    offsets.clone("b", "c", "T1")
    assert offsets.queues_of("c", "T1") == {0: 3, 1: 9}
    offsets.remove("b", "T2")
    assert offsets.topics_of_group("b") == {"T1"}
    offsets.remove("b")
    assert offsets.topics_of_group("b") == set()
    offsets.remove_topic("T1")
    assert offsets.table == {}


def test_a_snapshot_does_not_change_any_more(offsets: ConsumerOffsets) -> None:
    """B9: it is written by another thread."""
    offsets.commit(PEER, "billing", "Orders", 0, 1)
    saved = offsets.snapshot()
    offsets.commit(PEER, "billing", "Orders", 0, 2)
    assert saved.offset_table == {"Orders@billing": {0: 1}}
    fresh = ConsumerOffsets(Settings(BrokerConfig()), VirtualClock())
    fresh.load(ConsumerOffsetTable(DataVersion(0, 1, 2), {"Orders@billing": {0: 7}}))
    assert fresh.query("billing", "Orders", 0) == 7
    assert fresh.data_version == DataVersion(0, 1, 2)
