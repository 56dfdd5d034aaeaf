"""Requests read in one pass say what the general way reads in them, or are left to it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.model.errors import HeaderError
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import Command, decode_command
from cometmq.wire.frame.framing import JSON, Frame
from cometmq.wire.frame.request_reader import (
    LONG_START_BYTES,
    SHORT_START_BYTES,
    request_reader,
    start_of_request,
)
from cometmq.wire.header.schema import Header
from cometmq.wire.headers.pull import PullMessageRequest
from cometmq.wire.headers.send import SendMessageRequestV2
from tests.all_headers import REQUEST_HEADERS

BODY = memoryview(b"body")
SEND = {
    "a": "group",
    "b": "topic",
    "c": "TBW102",
    "d": "4",
    "e": "3",
    "f": "0",
    "g": "1794730288118",
    "h": "0",
    "i": "KEYS\u0001k\u0002",
    "j": "0",
    "k": "false",
    "m": "false",
    "n": "broker-a",
}
PULL = {
    "consumerGroup": "g",
    "topic": "t",
    "queueId": "1",
    "queueOffset": "7",
    "maxMsgNums": "32",
    "sysFlag": "2",
    "commitOffset": "0",
    "suspendTimeoutMillis": "15000",
    "subVersion": "1",
}
read_send = request_reader(310, SendMessageRequestV2)
read_pull = request_reader(11, PullMessageRequest)


def header_text(code: int, fields: Any, **members: Any) -> bytes:
    plain = {"code": code, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": 5, "version": 479}
    return json.dumps(plain | members, separators=(",", ":")).encode()


def said(command: Command, cls: type[Header]) -> tuple[object, ...]:
    """Everything that a command says, read in whatever way."""
    members = (command.code, command.opaque, command.flag, command.version, command.language, command.remark)
    return (*members, command.serialize_type, bytes(command.body), command.header(cls), command.fields())


def said_in_general(raw: bytes, cls: type[Header]) -> tuple[object, ...] | str:
    try:
        return said(decode_command(Frame(JSON, raw, BODY)), cls)
    except HeaderError as error:
        return error.message


def test_a_plain_request_is_read_at_once() -> None:
    raw = header_text(310, SEND)
    command = read_send(raw, BODY)
    assert command is not None
    assert isinstance(command.typed, SendMessageRequestV2)
    assert command.header(SendMessageRequestV2) is command.typed
    assert (command.typed.topic, command.typed.queue_id, command.typed.unit_mode) == ("topic", 3, False)
    assert command.fields() == SEND
    assert command.body is BODY
    assert said(command, SendMessageRequestV2) == said_in_general(raw, SendMessageRequestV2)


def test_numbers_where_texts_belong_are_read_alike() -> None:
    """Some clients write numbers and truths as such."""
    raw = header_text(11, {**PULL, "queueId": 1, "queueOffset": 7, "lo": True, "bname": "b"})
    command = read_pull(raw, BODY)
    assert command is not None
    assert said(command, PullMessageRequest) == said_in_general(raw, PullMessageRequest)
    assert command.fields()["queueId"] == "1"


ODD = {
    "a field is missing": (header_text(310, {"a": "group"}), False),
    "no fields": (b'{"code":310,"opaque":5}', False),
    "fields that are null": (header_text(310, None), False),
    "a field out of range": (header_text(310, {**SEND, "e": "2147483648"}), False),
    "an integer as Java spells it": (header_text(310, {**SEND, "e": "+003"}), False),
    "an answer": (header_text(310, SEND, flag=1), False),
    "a member that nobody knows": (header_text(310, SEND, other=1), False),
    "another code behind it": (b'{"code":310,"code":11,"opaque":5,"extFields":{}}', False),
    "no opaque": (b'{"code":310,"extFields":{}}', False),
    "not JSON": (b'{"code":310,', False),
    "a one-way request": (header_text(310, SEND, flag=2), True),
    "texts where numbers belong": (header_text(310, SEND, opaque="6", flag="0"), True),
    "a remark": (header_text(310, SEND, remark="null"), True),
    "an unknown language": (header_text(310, SEND, language="KLINGON"), True),
    "a language in another case": (header_text(310, SEND, language="go"), True),
    "no language": (header_text(310, SEND, language=None), True),
    "names of our own": (header_text(310, SEND, body=1, received_fields=2), True),
    "a type of its own": (header_text(310, SEND, serializeTypeCurrentRPC="ROCKETMQ"), True),
    "fields that nobody knows": (header_text(310, {**SEND, "zz": "1"}), True),
}


@pytest.mark.parametrize(("raw", "taken"), ODD.values(), ids=ODD)
def test_an_odd_request_is_read_alike_or_left_to_the_general_way(raw: bytes, taken: bool) -> None:
    command = read_send(raw, BODY)
    assert (command is not None) == taken
    if command is not None:
        assert said(command, SendMessageRequestV2) == said_in_general(raw, SendMessageRequestV2)


TEXT = st.text(max_size=6) | st.sampled_from(
    ["0", "1", "007", "+7", "1.0", "1e2", "null", "true", "", " 1", "9" * 12]
)
VALUES = st.none() | st.booleans() | st.integers(-(2**33), 2**33) | st.floats(allow_nan=False) | TEXT
MEMBERS = [
    "code",
    "opaque",
    "flag",
    "version",
    "language",
    "remark",
    "extFields",
    "body",
    "typed",
    "serialize_type",
]


@settings(max_examples=400)
@given(
    fields=st.dictionaries(st.sampled_from([*PULL, "bname", "nsd", "subscription", "x"]), VALUES, max_size=6),
    members=st.dictionaries(st.sampled_from(MEMBERS), VALUES, max_size=3),
)
def test_what_a_request_says_does_not_depend_on_the_way_on_which_it_was_read(
    fields: dict[str, Any], members: dict[str, Any]
) -> None:
    text = msgspec.json.encode({"opaque": 5, "extFields": {**PULL, **fields}, **members})
    raw = b'{"code":11,' + text[1:]
    command = read_pull(raw, BODY)
    if command is not None:
        assert said(command, PullMessageRequest) == said_in_general(raw, PullMessageRequest)


def test_the_codes_of_brokers_are_told_apart_by_how_their_requests_begin() -> None:
    starts = {code: start_of_request(code) for code in REQUEST_HEADERS}
    for code in (10, 310, 320, 11, 361, 14, 15, 36, 105, RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE):
        start = starts[code]
        assert start is not None
        assert len(start) in (SHORT_START_BYTES, LONG_START_BYTES)
        assert header_text(int(code), {}).startswith(start)
        assert [other for other in starts if header_text(int(other), {}).startswith(start)] == [code]
    assert start_of_request(5) is None
    assert start_of_request(1_005) is None
