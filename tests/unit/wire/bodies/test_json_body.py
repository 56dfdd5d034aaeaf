"""JSON bodies are read in standard JSON and in Java's dialect, and written in Java's order."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.errors import HeaderError
from cometmq.model.topic import DataVersion
from cometmq.wire.bodies.json_body import decode_json_body, encode_kv_table, encode_topic_list

VERSION = DataVersion(state_version=0, timestamp=1_700_000_000_000, counter=3)


@pytest.mark.parametrize(
    "body",
    [
        b'{"counter":3,"stateVersion":0,"timestamp":1700000000000}',
        b"{counter:3,stateVersion:0,'timestamp':1700000000000,}",
        b'{"counter":"3","timestamp":"1700000000000"}',
        b'{"counter":3,"timestamp":1700000000000,"somethingNew":{"a":[1]}}',
    ],
    ids=["standard", "dialect", "numbers as text", "unknown member"],
)
def test_a_data_version_is_read_in_every_dialect(body: bytes) -> None:
    """N5: what brokers of several languages send."""
    assert decode_json_body(DataVersion, body) == VERSION
    assert decode_json_body(DataVersion, memoryview(body)) == VERSION


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'{"counter":"x"}', b"{" * 500, b"null"])
def test_a_body_that_cannot_be_read_is_one_error(body: bytes) -> None:
    """N9: never anything but `HeaderError`."""
    with pytest.raises(HeaderError):
        decode_json_body(DataVersion, body)


@given(st.binary(max_size=60))
def test_random_bytes_are_read_or_refused(body: bytes) -> None:
    """N9: random bytes do no harm."""
    try:
        decode_json_body(DataVersion, body)
    except HeaderError:
        pass


def test_topic_lists() -> None:
    """N9: the address comes first and only where there is one."""
    assert encode_topic_list(["T1", "T2"]) == b'{"topicList":["T1","T2"]}'
    assert encode_topic_list([]) == b'{"topicList":[]}'
    assert encode_topic_list(["c"], "1.2.3.4:5") == b'{"brokerAddr":"1.2.3.4:5","topicList":["c"]}'


def test_key_value_tables() -> None:
    """N8: slashes and characters beyond ASCII stay as they are."""
    body = encode_kv_table({"k1": "v1", "k2": 'v/2 "q" é €'})
    assert body == '{"table":{"k1":"v1","k2":"v/2 \\"q\\" é €"}}'.encode()
    assert msgspec.json.decode(body) == {"table": {"k1": "v1", "k2": 'v/2 "q" é €'}}
