"""Messages of a store as plain values."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from cometmq.model.errors import StoreError
from cometmq.ports.disk import SystemDisk
from cometmq.store.queue.consume_queues import ConsumeQueues
from cometmq.store.read.reader import GetStatus, MessageReader
from cometmq.store.tools.dump import MessageDict, dump_topic, message_dict
from cometmq.store.tools.survey import open_log, survey_store
from cometmq.wire.record.codec import decode_record
from cometmq.wire.record.walk import to_stored_message
from tests.unit.store.log_kit import config
from tests.unit.store.small_store import PLENTY_OF_MEMORY, SmallStore, a_closed_store
from tests.unit.store.store_vectors import DATA, unpack_clean_store

DISK = SystemDisk()
ADDED_BY_CLIENTS = ("MIN_OFFSET", "MAX_OFFSET", "CLUSTER")


def as_a_client_shows_it(message: MessageDict) -> MessageDict:
    """Hosts as Java writes them, and without what is not in the store or only in a dump."""
    shown = {key: value for key, value in message.items() if key not in ("text", "brokerName")}
    for host in ("bornHost", "storeHost"):
        shown[host] = "/" + str(shown[host]).removeprefix("/")
    properties = shown["properties"]
    assert isinstance(properties, dict)
    shown["properties"] = {name: properties[name] for name in properties if name not in ADDED_BY_CLIENTS}
    return shown


def place_of(message: MessageDict) -> int:
    return int(str(message["commitLogOffset"]))


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_clean_store(tmp_path_factory.mktemp("apache"), "commitlog", "consumequeue", "config")


@pytest.fixture(scope="module")
def seen_by_java() -> list[MessageDict]:
    """What a Java consumer reads from that store, in the order of the log."""
    lines = gzip.decompress((DATA.parent / "messages-clean.jsonl.gz").read_bytes()).splitlines()
    assert len(lines) == 151
    return sorted((as_a_client_shows_it(json.loads(line)) for line in lines), key=place_of)


def test_every_message_that_a_java_consumer_reads_is_dumped_equal(
    apache: Path, seen_by_java: list[MessageDict]
) -> None:
    """B4"""
    topics = {str(message["topic"]) for message in seen_by_java}
    dumped = [as_a_client_shows_it(each) for topic in topics for each in dump_topic(DISK, apache, topic)]

    assert sorted(dumped, key=place_of) == seen_by_java


@pytest.mark.parametrize("check_crc", [False, True])
def test_every_message_that_a_java_consumer_reads_is_read_equal(
    apache: Path, seen_by_java: list[MessageDict], check_crc: bool
) -> None:
    """B4"""
    survey = survey_store(DISK, apache)
    log = open_log(DISK, survey)
    queues = ConsumeQueues(DISK, apache / "consumequeue", survey.queue_file_size, writable=False)
    queues.load()
    settings = config(apache, mapped_file_size_consume_queue=survey.queue_file_size)
    reader = MessageReader(log, queues.find, settings, PLENTY_OF_MEMORY, check_crc=check_crc)
    read = []
    for queue in queues:
        offset = queue.min_offset
        while offset < queue.max_offset:
            result = reader.get(queue.topic, queue.queue_id, offset, 3)
            assert result.status is GetStatus.FOUND
            for view in result.records:
                record = decode_record(view, decompress_body=True)
                read.append(as_a_client_shows_it(message_dict(to_stored_message(record, ""))))
            offset = result.next_offset
    assert sorted(read, key=place_of) == seen_by_java
    queues.close()
    log.files.close()


def test_queues_come_one_after_the_other_from_the_offset_on(tmp_path: Path) -> None:
    a_closed_store(tmp_path, 30)
    shown = list(dump_topic(DISK, tmp_path, "orders", from_offset=8))
    assert [(each["queueId"], each["queueOffset"]) for each in shown] == [
        (queue_id, offset) for queue_id in range(3) for offset in (8, 9)
    ]
    some = list(dump_topic(DISK, tmp_path, "orders", queue_id=1, limit=4))
    assert [each["queueOffset"] for each in some] == [0, 1, 2, 3]
    assert list(dump_topic(DISK, tmp_path, "orders", limit=0)) == []
    assert list(dump_topic(DISK, tmp_path, "orders", from_offset=100)) == []


def test_a_body_is_shown_as_text_only_if_it_is(tmp_path: Path) -> None:
    store = SmallStore(tmp_path)
    store.put(body="größer".encode())
    store.put(body=b"\xff\xfe")
    store.close()
    text, binary = dump_topic(DISK, tmp_path, "orders")

    assert (text["text"], text["body"]) == ("größer", "Z3LDtsOfZXI=")
    assert "text" not in binary
    assert binary["body"] == "//4="


def test_damage_is_shown_as_an_error_in_the_place_of_the_content(tmp_path: Path) -> None:
    """B5"""
    store = SmallStore(tmp_path)
    places = [store.put(body=b"message").physical_offset for _ in range(3)]
    store.close()
    log = tmp_path / "commitlog" / f"{0:020}"
    data = bytearray(log.read_bytes())
    data[places[1] + 88] ^= 1
    log.write_bytes(data)
    shown = list(dump_topic(DISK, tmp_path, "orders"))

    assert [each.get("error") for each in shown] == [None, "the record is damaged", None]
    assert "body" not in shown[1]
    assert (shown[1]["queueOffset"], shown[1]["commitLogOffset"]) == (1, places[1])


def test_messages_of_expired_log_files_are_left_out(tmp_path: Path) -> None:
    a_closed_store(tmp_path)
    (tmp_path / "commitlog" / f"{0:020}").unlink()
    shown = list(dump_topic(DISK, tmp_path, "orders"))

    assert shown
    assert all("error" not in each for each in shown)
    assert int(str(shown[0]["queueOffset"])) > 0


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    a_closed_store(tmp_path, 3)
    with pytest.raises(StoreError, match="topic 'none' has no queues"):
        list(dump_topic(DISK, tmp_path, "none"))
    with pytest.raises(StoreError, match=r"has no queue 9 in .*, but 0, 1, 2"):
        list(dump_topic(DISK, tmp_path, "orders", queue_id=9))
