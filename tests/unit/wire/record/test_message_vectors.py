"""The commit log that Apache RocketMQ 5.3.3 wrote, against what a Java consumer read from it.

`commitlog-clean.gz` is the used part of a commit log file, `messages-clean.jsonl.gz` has one line for every
message that a Java client could pull.
"""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from cometmq.wire.record.codec import Record, decode_record, encode_record
from cometmq.wire.record.crc import checksum
from cometmq.wire.record.ids import decode_offset_id, encode_offset_id
from cometmq.wire.record.properties import encode_properties, find_property
from cometmq.wire.record.walk import RecordWalk, WalkEnd, to_stored_message
from tests.unique_ids import parse_unique_id

DATA = Path(__file__).parents[3] / "data"
RECORDS_IN_LOG = 153
RECORDS_FROM_BATCHES = 10
ADDED_WHILE_READING = {"MIN_OFFSET", "MAX_OFFSET"}


@pytest.fixture(scope="module")
def commit_log() -> bytes:
    return gzip.decompress((DATA / "commitlog-clean.gz").read_bytes())


@pytest.fixture(scope="module")
def consumed() -> list[dict[str, Any]]:
    lines = gzip.decompress((DATA / "messages-clean.jsonl.gz").read_bytes()).decode("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_the_whole_log_is_read_with_right_checksums(commit_log: bytes) -> None:
    """B4"""
    walk = RecordWalk(commit_log)
    positions = []
    for record in walk:
        positions.append(walk.position - record.total_size)
        assert record.physical_offset == positions[-1]
        assert checksum(record.body) == record.body_crc

    assert len(positions) == RECORDS_IN_LOG
    assert (walk.end, walk.position) == (WalkEnd.LIMIT, len(commit_log))


def test_every_record_is_written_again_byte_for_byte(commit_log: bytes) -> None:
    """B4"""
    again = b"".join(map(encode_record, RecordWalk(commit_log)))

    assert again == commit_log


def test_version_and_checksum_are_chosen_as_apache_chose_them(commit_log: bytes) -> None:
    for record in RecordWalk(commit_log):
        at = record.physical_offset
        record.magic, record.body_crc = 0, None
        assert encode_record(record) == commit_log[at : at + record.total_size]


def test_properties_are_written_as_apache_wrote_them(commit_log: bytes) -> None:
    rewritten = 0
    for record in RecordWalk(commit_log):
        properties = record.properties()
        if len(properties) == bytes(record.properties_block).count(b"\x01"):
            assert encode_properties(properties) == record.properties_block
            rewritten += 1
        for name, value in properties.items():
            assert find_property(record.properties_block, name) == value

    assert rewritten == RECORDS_IN_LOG - RECORDS_FROM_BATCHES


def test_of_a_property_that_stands_twice_the_last_counts(
    commit_log: bytes, consumed: list[dict[str, Any]]
) -> None:
    """Apache's broker puts the batch's own properties behind those of each message of the batch."""
    batched = [seen for seen in consumed if seen["properties"].get("TAGS") == "TagBatch"]
    assert len(batched) == RECORDS_FROM_BATCHES

    for seen in batched:
        block = bytes(decode_record(commit_log, seen["commitLogOffset"]).properties_block)
        assert block.count(b"UNIQ_KEY\x01") == 2
        assert block.rpartition(b"UNIQ_KEY\x01")[2].startswith(seen["msgId"].encode())
        assert find_property(block, "UNIQ_KEY") == seen["msgId"]


def test_every_message_is_what_a_java_consumer_saw(commit_log: bytes, consumed: list[dict[str, Any]]) -> None:
    """C4"""
    assert len(consumed) == RECORDS_IN_LOG - 2  # two topics made by auto-creation were not consumed
    for seen in consumed:
        record = decode_record(commit_log, seen["commitLogOffset"], check_crc=True, decompress_body=True)
        message = to_stored_message(record, seen["brokerName"])

        assert message.body == base64.b64decode(seen["body"])
        assert message.properties == {
            name: value for name, value in seen["properties"].items() if name not in ADDED_WHILE_READING
        }
        assert {
            "topic": message.topic,
            "brokerName": message.broker_name,
            "queueId": message.queue_id,
            "queueOffset": message.queue_offset,
            "commitLogOffset": message.commit_log_offset,
            "storeSize": message.store_size,
            "bodyCRC": message.body_crc,
            "flag": message.flag,
            "sysFlag": message.sys_flag,
            "bornTimestamp": message.born_timestamp_ms,
            "bornHost": f"/{message.born_host}",
            "storeTimestamp": message.store_timestamp_ms,
            "storeHost": f"/{message.store_host}",
            "reconsumeTimes": message.reconsume_times,
            "preparedTransactionOffset": message.prepared_transaction_offset,
            "msgId": message.msg_id,
            "offsetMsgId": message.offset_msg_id,
        } == {name: value for name, value in seen.items() if name not in ("body", "properties")}


def test_the_log_has_bodies_of_all_three_compressions(commit_log: bytes) -> None:
    """P6"""
    flags = {record.sys_flag for record in RecordWalk(commit_log)}

    assert {0x101, 0x201, 0x301} <= flags


def test_the_ids_of_a_java_client_and_an_apache_broker_are_read(
    commit_log: bytes, consumed: list[dict[str, Any]]
) -> None:
    """B10"""
    for seen in consumed:
        record: Record = decode_record(commit_log, seen["commitLogOffset"])
        offset_id = decode_offset_id(seen["offsetMsgId"])
        assert f"/{offset_id.store_host}" == seen["storeHost"]
        assert encode_offset_id(record.store_host, offset_id.commit_log_offset) == seen["offsetMsgId"]
    unique_ids = {seen["properties"]["UNIQ_KEY"] for seen in consumed if "UNIQ_KEY" in seen["properties"]}
    from_clients = [text for text in unique_ids if len(text) == 56]
    assert len(from_clients) > 50
    assert {parse_unique_id(text).ip for text in from_clients} == {"fd00::2"}
