"""The three forms of a registration's body (N4)."""

from __future__ import annotations

import json
import zlib
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.errors import HeaderError
from cometmq.model.topic import DataVersion, TopicConfig, TopicQueueMappingInfo
from cometmq.wire.bodies import registration
from cometmq.wire.bodies.registration import Registration, decode_registration, encode_registration

VERSION = DataVersion(0, 1_700_000_000_000, 1)
VERSION_JSON = b'{"counter":1,"stateVersion":0,"timestamp":1700000000000}'
TODAY, BEFORE_5, BEFORE_3_0_11 = 479, 412, 36


def item(content: bytes) -> bytes:
    return pack(">i", len(content)) + content


def compressed(
    *topics: bytes,
    version: bytes = VERSION_JSON,
    filters: bytes = b"[]",
    mappings: list[bytes] | None = None,
    rest: bytes = b"",
) -> bytes:
    """A compressed body as a broker lays it out."""
    plain = item(version) + pack(">i", len(topics)) + b"".join(map(item, topics)) + item(filters)
    if mappings is not None:
        plain += pack(">i", len(mappings)) + b"".join(map(item, mappings))
    return zlib.compress(plain + rest, 9)


def whole(**members: object) -> bytes:
    return json.dumps(members).encode()


TABLE = {
    "dataVersion": json.loads(VERSION_JSON),
    "topicConfigTable": {
        "T1": {
            "attributes": {"+message.type": "FIFO"},
            "order": True,
            "perm": 6,
            "readQueueNums": 4,
            "topicFilterType": "SINGLE_TAG",
            "topicName": "T1",
            "topicSysFlag": 1,
            "writeQueueNums": 8,
        }
    },
}
T1 = TopicConfig("T1", 4, 8, 6, "SINGLE_TAG", 1, True, {"+message.type": "FIFO"})


def test_the_json_form_of_today() -> None:
    """N4: topics with all their fields, the data version, filter servers, queue mappings."""
    mapping = {
        "bname": "b",
        "currIdMap": {"0": 0},
        "dirty": False,
        "epoch": 5,
        "topic": "T1",
        "totalQueues": 8,
    }
    body = whole(
        filterServerList=["f:1"],
        topicConfigSerializeWrapper={**TABLE, "topicQueueMappingInfoMap": {"T1": mapping}},
    )
    said = decode_registration(body, version=TODAY, compressed=False)
    assert said.data_version == VERSION
    assert said.topics == {"T1": T1}
    assert said.filter_servers == ["f:1"]
    assert said.mappings == {"T1": TopicQueueMappingInfo("T1", "b", 8, 5, False, None, {0: 0})}


def test_the_json_form_in_javas_dialect() -> None:
    """N4: bare number keys and references, as Java's library writes them."""
    body = (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":' + VERSION_JSON + b","
        b'"topicConfigTable":{"T1":{"topicName":"T1","perm":6},"T2":'
        b'{"$ref":"$.topicConfigSerializeWrapper.topicConfigTable.T1"}},'
        b'"topicQueueMappingInfoMap":{"T1":{"bname":"b","currIdMap":{0:3},"topic":"T1"}}}}'
    )
    said = decode_registration(body, version=TODAY, compressed=False)
    assert said.topics["T2"].topic_name == "T1"
    assert said.mappings["T1"].curr_id_map == {0: 3}


@pytest.mark.parametrize(
    ("members", "filters"),
    [({}, []), ({"filterServerList": []}, []), ({"filterServerList": None}, None)],
    ids=["absent", "empty", "null"],
)
def test_filter_servers_that_are_absent_are_none_and_null_says_nothing(
    members: dict[str, object], filters: list[str] | None
) -> None:
    """N4: only null leaves what is known about them."""
    body = whole(topicConfigSerializeWrapper=TABLE, **members)
    assert decode_registration(body, version=TODAY, compressed=False).filter_servers == filters


def test_a_bare_topic_table_of_the_first_brokers() -> None:
    """N4: before 3.0.11 there was nothing else."""
    said = decode_registration(whole(**TABLE), version=BEFORE_3_0_11, compressed=False)
    assert said == Registration(VERSION, {"T1": T1}, None, {})


@pytest.mark.parametrize("version", [TODAY, BEFORE_5])
def test_no_body_is_no_topics(version: int) -> None:
    """N4: with a data version of zeros, and no filter servers."""
    assert decode_registration(b"", version=version, compressed=False) == Registration(filter_servers=[])


def test_the_compressed_form() -> None:
    """N4: less of each topic; attributes may be missing; mappings from 5.0 on."""
    body = compressed(
        b"T1 4 8 6 SINGLE_TAG",
        b'T2 1 2 4 SINGLE_TAG {"+message.type":"NORMAL"}',
        filters=b'["f:1"]',
        mappings=[b'{"bname":"b","currIdMap":{0:0},"topic":"S","totalQueues":8}'],
    )
    said = decode_registration(memoryview(body), version=TODAY, compressed=True)
    assert said.data_version == VERSION
    assert said.topics == {
        "T1": TopicConfig("T1", 4, 8, 6),
        "T2": TopicConfig("T2", 1, 2, 4, attributes={"+message.type": "NORMAL"}),
    }
    assert said.filter_servers == ["f:1"]
    assert said.mappings["S"].total_queues == 8


def test_the_compressed_form_before_5_has_no_mappings() -> None:
    """N4: the version of the sender decides."""
    said = decode_registration(compressed(b"T1 4 8 6 SINGLE_TAG"), version=BEFORE_5, compressed=True)
    assert (list(said.topics), said.mappings) == (["T1"], {})
    with pytest.raises(HeaderError, match="inside a number"):
        decode_registration(compressed(b"T1 4 8 6 SINGLE_TAG"), version=TODAY, compressed=True)


def test_a_compressed_body_that_says_it_is_plain_is_recognised() -> None:
    """N4: Apache's brokers send it like that."""
    body = compressed(b"T1 4 8 6 SINGLE_TAG", mappings=[])
    assert list(decode_registration(body, version=TODAY, compressed=False).topics) == ["T1"]


@pytest.mark.parametrize(
    "body",
    [
        b"garbage",
        compressed(mappings=[])[:-3],
        compressed(b"T1", mappings=[]),
        compressed(b"T1 a b c SINGLE_TAG", mappings=[]),
        compressed(b"\xff\xff 1 1 6 SINGLE_TAG", mappings=[]),
        compressed(b"T1 1 1 6 SINGLE_TAG {broken", mappings=[]),
        compressed(version=b"no version", mappings=[]),
        compressed(filters=b"{}", mappings=[]),
        compressed(mappings=[b'{"topic":1}']),
        zlib.compress(pack(">i", 1_000_000)),
        zlib.compress(pack(">i", -1)),
        zlib.compress(b"\x00"),
    ],
)
def test_a_compressed_body_that_does_not_fit_its_layout_is_one_error(body: bytes) -> None:
    """N4: whatever is wrong with it."""
    with pytest.raises(HeaderError):
        decode_registration(body, version=TODAY, compressed=True)


def test_a_small_body_may_not_grow_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """N4: what a compressed body becomes is bounded."""
    monkeypatch.setattr(registration, "MAX_PLAIN_BYTES", 1_000)
    with pytest.raises(HeaderError, match="larger than 1000 bytes"):
        decode_registration(compressed(b"x" * 10_000), version=TODAY, compressed=True)


@given(st.binary(max_size=80), st.booleans(), st.sampled_from([TODAY, BEFORE_5, BEFORE_3_0_11]))
def test_random_bytes_are_read_or_refused(body: bytes, is_compressed: bool, version: int) -> None:
    """N4: random bytes do no harm, inside the compression neither."""
    for form in (body, zlib.compress(body)):
        try:
            decode_registration(form, version=version, compressed=is_compressed)
        except HeaderError:
            pass


def test_what_our_brokers_send_is_read_back() -> None:
    """N4: the JSON form, written here."""
    body = encode_registration([T1, TopicConfig("T2")], VERSION, ["f:1"])
    said = decode_registration(body, version=TODAY, compressed=False)
    assert said == Registration(VERSION, {"T1": T1, "T2": TopicConfig("T2", attributes={})}, ["f:1"], {})
