"""Requests that no client of ours would send, and every code that a name server serves (N9)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from struct import pack, unpack_from

import pytest

from cometmq.namesrv.service import Namesrv
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import ONEWAY_FLAG, encode_command
from cometmq.wire.frame.framing import JSON, ROCKETMQ
from tests.answers import Told
from tests.integration.namesrv.namesrv_kit import (
    A1,
    CLUSTER,
    NAME,
    OK,
    Visit,
    both_encodings,
    config_in,
    plain_connection,
    running_namesrv,
)
from tests.waiting import eventually

SERVED = {100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 318, 319}
SERVED |= {322, 327, 901, 904}


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[Visit]:
    async with running_namesrv(tmp_path) as visit:
        yield visit


def frame(header: object, body: bytes = b"") -> bytes:
    """A frame whose JSON header is written as it is."""
    text = json.dumps(header).encode()
    return pack(">ii", 4 + len(text) + len(body), len(text)) + text + body


def test_every_code_of_the_default_processor_is_served(tmp_path: Path) -> None:
    """N9: all of them, and no other."""
    assert Namesrv(config_in(tmp_path)).server.handlers.codes == SERVED


@pytest.mark.parametrize("code", [999, 310, 0, -1, 40_000])
@both_encodings
async def test_an_unknown_code_is_answered_with_a_code(namesrv: Visit, code: int, encoding: int) -> None:
    """N9: not with silence; a binary header has 16 bits for the code."""
    seen = code if encoding == JSON or code < 2**15 else code - 2**16
    answer = await namesrv.ask(code, encoding=encoding)
    assert answer == Told(3, f" request type {seen} not supported", {}, b"")


@pytest.mark.parametrize("code", sorted(SERVED - {106, 206, 304, 311, 312, 313, 318, 319}))
@pytest.mark.parametrize("fields", [None, {}], ids=["no fields at all", "empty fields"])
@both_encodings
async def test_a_request_that_lacks_a_field_is_refused_by_its_name(
    namesrv: Visit, code: int, fields: Mapping[str, str] | None, encoding: int
) -> None:
    """N9: Apache's name server takes some of them for null and does nothing; we say what is missing."""
    async with plain_connection(namesrv.address) as wire:
        answer = await wire.ask(code, fields, encoding=encoding)
        assert (answer.code, answer.body) == (1, b"")
        assert "the request lacks its field" in (answer.remark or "")
        assert (await wire.ask(106)).code == 0, "the connection goes on"


@pytest.mark.parametrize("value", ["abc", "", "1.5", "99999999999999999999"])
async def test_a_field_that_is_no_number_is_refused(namesrv: Visit, value: str) -> None:
    """N9: and changes nothing."""
    await namesrv.broker().register()
    fields = {"brokerName": NAME, "brokerAddr": A1, "clusterName": CLUSTER, "brokerId": value}
    async with plain_connection(namesrv.address) as wire:
        answer = await wire.ask(RequestCode.UNREGISTER_BROKER, fields)
    assert answer.code == 1
    assert "brokerId" in (answer.remark or "")
    assert (await namesrv.route("T1")).code == 0


async def test_numbers_and_booleans_may_stand_where_text_belongs(namesrv: Visit) -> None:
    """N9: some clients write them so; their literal text is what counts."""
    await namesrv.broker(topics=["1", "T2"]).register()
    fields = {"topic": 1, "acceptStandardJsonOnly": True}
    header = {"code": 105, "opaque": 5, "flag": 0, "version": 121, "language": "NODEJS", "extFields": fields}
    async with plain_connection(namesrv.address) as wire:
        answer = await wire.send(frame(header))
        assert answer.code == 0
        assert b'{"0":"127.0.0.1:10911"}' in answer.body
        header["extFields"] = {"topic": 9}
        assert ("topic: 9\n") in ((await wire.send(frame(header))).remark or "")


async def test_a_broker_may_register_with_numbers(namesrv: Visit) -> None:
    """N4: id, time-out and flags as numbers and booleans."""
    fields = {
        "brokerName": NAME,
        "brokerAddr": A1,
        "clusterName": CLUSTER,
        "haServerAddr": "127.0.0.1:10912",
        "brokerId": 0,
        "heartbeatTimeoutMillis": 5000,
        "enableActingMaster": True,
        "compressed": False,
        "bodyCrc32": 0,
    }
    async with plain_connection(namesrv.address) as wire:
        assert await wire.send(frame({"code": 103, "opaque": 5, "version": 479, "extFields": fields})) == OK
        tables = namesrv.server.state.tables
        assert tables.live[(CLUSTER, A1)].timeout_ms == 5000
        assert tables.brokers[NAME].enable_acting_master is True


async def test_a_header_with_nothing_but_a_code_and_an_unknown_language(namesrv: Visit) -> None:
    """N9: recorded from Apache's name server: both are answered."""
    empty = b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
    async with plain_connection(namesrv.address) as wire:
        for header in ({"code": 106, "opaque": 1}, {"code": 106, "opaque": 2, "language": "KLINGON"}):
            assert await wire.send(frame(header)) == Told(0, None, {}, empty)


async def test_an_answer_has_custom_fields_exactly_where_apaches_has(namesrv: Visit) -> None:
    """N9: an empty object where the answer has a header, nothing where it has none."""
    with_header = {
        101: {"namespace": "NS", "key": "k"},
        205: {"brokerName": "b"},
        327: {"brokerName": "b"},
        322: {"brokerName": "b", "brokerAddr": A1, "clusterName": "c", "brokerId": "0"},
    }
    without = {105: {"topic": "T"}, 219: {"namespace": "NS"}, 224: {"cluster": "c"}, 106: {}, 999: {}}
    async with plain_connection(namesrv.address) as wire:
        for code, fields in with_header.items():
            answer = await wire.exchange(encode_command(code, 1, 0, fields))
            assert answer.received_fields is not None, code
        for code, fields in without.items():
            answer = await wire.exchange(encode_command(code, 1, 0, fields))
            assert answer.received_fields is None, code


async def test_a_one_way_request_is_done_and_not_answered(namesrv: Visit) -> None:
    """N9: the next answer on the connection is that of the next request."""
    fields = {"namespace": "NS", "key": "k", "value": "v"}
    async with plain_connection(namesrv.address) as wire:
        one_way = encode_command(RequestCode.PUT_KV_CONFIG, 1, ONEWAY_FLAG, fields)
        answer = await wire.exchange(one_way + encode_command(RequestCode.GET_BROKER_CLUSTER_INFO, 2, 0))
        assert answer.opaque == 2
        kv = namesrv.server.state.kv
        await eventually(lambda: kv.get("NS", "k") == "v", "the value is there")


async def test_an_answer_comes_in_the_encoding_of_its_request(namesrv: Visit) -> None:
    """N9: on the same connection, one after the other."""
    async with plain_connection(namesrv.address) as wire:
        for encoding in (JSON, ROCKETMQ, JSON):
            request = encode_command(106, 1, 0, serialize_type=encoding)
            answer = await wire.exchange(request)
            assert answer.serialize_type == encoding
            assert unpack_from(">b", request, 4)[0] == encoding
