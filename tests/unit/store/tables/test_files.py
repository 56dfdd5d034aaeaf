"""The files in `config/`: Apache's are read and written byte for byte, and no crash takes a table."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest

from cometmq.model.errors import StoreError
from cometmq.model.subscription import SubscriptionGroupConfig
from cometmq.model.topic import DataVersion, TopicConfig
from cometmq.ports.disk import SystemDisk
from cometmq.store.tables import tables
from cometmq.store.tables.files import CONFIG_FOLDER, ConfigFile
from cometmq.store.tables.tables import (
    ConfigTable,
    ConsumerFilterTable,
    ConsumerOffsetTable,
    ConsumerOrderTable,
    DelayOffsetTable,
    LmqConsumerOffsetTable,
    MessageRequestModeTable,
    SubscriptionGroupTable,
    TimerMetricsTable,
    TopicQueueMappingTable,
    TopicTable,
    TransactionMetricsTable,
)
from cometmq.testing.simulation.disk import CrashMode, SimulatedDisk, crashes
from cometmq.wire.json.pretty import dumps_table, loads_table
from tests.unit.store.store_vectors import DATA, unpack_clean_store

FOLDER = Path("/store/config")
TOPICS = FOLDER / "topics.json"
BACKUP = FOLDER / "topics.json.bak"

IN_VECTOR = (
    TopicTable,
    ConsumerOffsetTable,
    SubscriptionGroupTable,
    DelayOffsetTable,
    MessageRequestModeTable,
    ConsumerFilterTable,
    ConsumerOrderTable,
    TimerMetricsTable,
    TransactionMetricsTable,
)
BY_JAVA = (
    ConsumerOffsetTable,
    ConsumerOrderTable,
    DelayOffsetTable,
    LmqConsumerOffsetTable,
    SubscriptionGroupTable,
    TopicQueueMappingTable,
)


@pytest.fixture(scope="module")
def vector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_clean_store(tmp_path_factory.mktemp("vector"), CONFIG_FOLDER) / CONFIG_FOLDER


def topics(*names: str) -> TopicTable:
    return TopicTable(DataVersion(0, 1, 2), {name: TopicConfig(name) for name in names})


def topics_file(disk: SimulatedDisk) -> ConfigFile[TopicTable]:
    return ConfigFile(disk, FOLDER, TopicTable)


@pytest.mark.parametrize("kind", IN_VECTOR)
def test_a_file_of_apache_is_written_again_byte_for_byte(kind: type[ConfigTable], vector: Path) -> None:
    """B4: and so is its back-up."""
    for path in (vector / kind.file_name, vector / f"{kind.file_name}.bak"):
        text = path.read_bytes()
        assert dumps_table(loads_table(kind, text), pretty=kind.is_pretty) == text


@pytest.mark.parametrize("kind", BY_JAVA)
def test_members_that_the_vector_lacks_are_written_as_java_writes_them(kind: type[ConfigTable]) -> None:
    """B4: retry policies, static topics, orders of pop, offsets of light queues."""
    text = (DATA / "config-java" / kind.file_name).read_bytes()
    assert dumps_table(loads_table(kind, text), pretty=kind.is_pretty) == text


def test_every_file_of_the_vector_has_its_table(vector: Path) -> None:
    names = {path.name.removesuffix(".bak") for path in vector.iterdir()} - {"timercheck"}
    assert names == {kind.file_name for kind in IN_VECTOR}
    known = {kind for kind in vars(tables).values() if hasattr(kind, "file_name")}
    assert {*IN_VECTOR, *BY_JAVA} == known


def test_a_topic_that_java_wrote_as_a_reference_to_another_is_read() -> None:
    text = (DATA / "config-java" / "topics.json").read_bytes()
    assert b'"$ref"' in text
    table = loads_table(TopicTable, text).topic_config_table
    assert table["Batch"] == table["Same"]
    assert table["Batch"].attributes == {"message.type": "FIFO", "queue.type": "BatchCQ"}


def test_what_is_read_from_the_vector_is_what_was_set_up(vector: Path) -> None:
    """B4"""
    disk = SystemDisk()
    offsets = ConfigFile(disk, vector, ConsumerOffsetTable).load()
    assert offsets is not None
    assert offsets.data_version == DataVersion(0, 1794730767716, 1)
    assert offsets.offset_table["VecNormal@CG_dlq"] == {0: 3, 1: 1, 2: 8, 3: 3}

    groups = ConfigFile(disk, vector, SubscriptionGroupTable).load()
    assert groups is not None
    assert groups.subscription_group_table["CG_push"] == SubscriptionGroupConfig("CG_push")

    delays = ConfigFile(disk, vector, DelayOffsetTable).load()
    assert delays is not None
    assert delays.offset_table == {1: 2, 2: 2}

    filters = ConfigFile(disk, vector, ConsumerFilterTable).load()
    assert filters is not None
    found = filters.filter_data_by_topic["VecSql"].group_filter_data["CG_sql"]
    assert found.bloom_filter_data is not None
    assert (found.expression_type, found.bloom_filter_data.bit_pos) == ("SQL92", (94, 13, 99))

    modes = ConfigFile(disk, vector, MessageRequestModeTable).load()
    assert modes is not None
    assert modes.message_request_mode_map["VecPop"]["CG_pop"].pop_share_queue_num == 8


def test_the_topics_of_a_group_are_derived_from_the_offsets_when_they_are_saved(vector: Path) -> None:
    """Java has them in the order of its hash table, which is the one difference to its text."""
    disk = SimulatedDisk()
    text = (vector / "consumerOffset.json").read_bytes()
    table = loads_table(ConsumerOffsetTable, text)
    written_by_java = {group: {*names} for group, names in table.group_topic_map.items()}
    table.group_topic_map = {"made up": ("nonsense",)}
    ConfigFile(disk, FOLDER, ConsumerOffsetTable).save(table)

    again = disk.read(FOLDER / "consumerOffset.json")
    assert again is not None
    section = slice(text.index(b'\t"offsetTable"'), None)
    assert again[again.index(b'\t"offsetTable"') :] == text[section]
    assert len(again) == len(text)
    derived = loads_table(ConsumerOffsetTable, again).group_topic_map
    assert {group: {*names} for group, names in derived.items()} == written_by_java


def test_nothing_there_is_no_table_and_no_error() -> None:
    disk = SimulatedDisk()
    assert topics_file(disk).load() is None
    disk.replace(TOPICS, b"")
    assert topics_file(disk).load() is None


def test_a_saved_table_is_loaded_again_and_the_previous_one_is_beside_it() -> None:
    disk = SimulatedDisk()
    assert topics_file(disk).save(topics("A"))
    assert topics_file(disk).save(topics("A", "B"))
    assert topics_file(disk).load() == topics("A", "B")
    assert loads_table(TopicTable, disk.read(BACKUP) or b"") == topics("A")


def test_a_table_that_did_not_change_is_not_written_again() -> None:
    disk = SimulatedDisk()
    file = topics_file(disk)
    assert file.save(topics("A"))
    points = disk.points
    assert not file.save(topics("A"))
    assert disk.points == points
    assert file.save(topics("B"))


@pytest.mark.parametrize("broken", [b"", b'{"topicConfigTable":{"A"', b"\0" * 100])
def test_the_back_up_is_read_when_the_file_cannot_be(broken: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """B4: and it is not overwritten by the broken file when the table is saved next."""
    disk = SimulatedDisk()
    disk.replace(BACKUP, dumps_table(topics("A")))
    disk.replace(TOPICS, b"x")
    disk.replace(TOPICS, broken)
    disk.replace(BACKUP, dumps_table(topics("A")))
    with caplog.at_level(logging.WARNING):
        assert topics_file(disk).load(repair=False) == topics("A")
    assert disk.read(TOPICS) == broken
    assert "topics.json cannot be read" in caplog.text

    assert topics_file(disk).load() == topics("A")
    assert disk.read(TOPICS) is None
    assert disk.read(FOLDER / "topics.json.unreadable") == (broken or None)
    topics_file(disk).save(topics("A", "B"))
    assert loads_table(TopicTable, disk.read(BACKUP) or b"") == topics("A")


def test_a_table_is_never_taken_for_empty_because_it_cannot_be_read() -> None:
    disk = SimulatedDisk()
    disk.replace(TOPICS, b"{{{")
    with pytest.raises(StoreError, match=r"/store/config/topics\.json cannot be read .* has no back-up"):
        topics_file(disk).load()
    disk.replace(BACKUP, b"}}}")
    with pytest.raises(StoreError, match=r"neither /store/config/topics\.json nor .*\.bak can be read"):
        topics_file(disk).load()
    disk.remove(TOPICS)
    with pytest.raises(StoreError, match=r"topics\.json\.bak"):
        topics_file(disk).load()


def test_a_disk_that_cannot_be_read_is_not_an_empty_one() -> None:
    disk = SimulatedDisk()
    topics_file(disk).save(topics("A"))
    disk.fail("read", TOPICS)
    with pytest.raises(OSError, match="Input/output error"):
        topics_file(disk).load()


def test_a_save_on_a_full_disk_leaves_the_old_table() -> None:
    disk = SimulatedDisk()
    file = topics_file(disk)
    file.save(topics("A"))
    disk.fail("sync", FOLDER / "topics.json.tmp", times=1)
    with pytest.raises(OSError, match="Input/output error"):
        file.save(topics("B"))
    assert topics_file(disk).load() == topics("A")
    assert file.save(topics("B"))
    assert topics_file(disk).load() == topics("B")


def test_a_crash_at_any_point_leaves_the_last_saved_table_or_the_next() -> None:
    """B4: whatever the disk does with what was not synced."""
    tables = [topics(*(f"Topic{number}" for number in range(count))) for count in range(1, 5)]

    def save_all(disk: SimulatedDisk) -> None:
        file = topics_file(disk)
        for table in tables:
            file.save(table)
            saved[disk.seed] = table

    saved: dict[int, TopicTable] = {}
    for disk, mode, after in crashes(
        save_all, lambda point: SimulatedDisk(point or 0, stop_at=point), CrashMode
    ):
        last = saved.get(disk.seed)
        following = tables[tables.index(last) + 1 :] if last is not None else tables
        found = topics_file(after).load()
        assert found in (last, *following[:1]), f"{mode} at {disk.last_point}"


def test_a_crash_while_the_back_up_is_taken_over_loses_nothing() -> None:
    """B4"""

    def make(point: int | None) -> SimulatedDisk:
        disk = SimulatedDisk()
        topics_file(disk).save(topics("A"))
        disk.replace(TOPICS, b"broken")
        disk = disk.crash(CrashMode.KEEP)
        disk.stop_at(point)
        return disk

    def take_over(disk: SimulatedDisk) -> None:
        file = topics_file(disk)
        assert file.load() == topics("A")
        file.save(topics("A", "B"))

    for disk, mode, after in crashes(take_over, make, CrashMode):
        found = topics_file(after).load()
        assert found in (topics("A"), topics("A", "B")), f"{mode} at {disk.last_point}"


def test_members_of_a_newer_version_are_skipped_and_missing_ones_have_defaults() -> None:
    text = b'{"topicConfigTable":{"A":{"topicName":"A","perm":4,"invented":{"x":[1]}}},"alsoInvented":1}'
    table = loads_table(TopicTable, text)
    assert table == TopicTable(DataVersion(), {"A": TopicConfig("A", perm=4)})
    assert msgspec.structs.asdict(loads_table(ConsumerOrderTable, b"{}")) == {"table": {}}
