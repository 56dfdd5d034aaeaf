"""A server over real sockets: every request gets its answer, with a code, and never silence."""

from __future__ import annotations

import logging
from copy import deepcopy

import pytest

from cometmq.model.errors import CometError
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, HandlerTable, NoHeader
from cometmq.remoting.metrics.counters import UNKNOWN_CODE
from cometmq.remoting.server import RemotingServer
from cometmq.wire.codes import ResponseCode
from cometmq.wire.frame.command import ONEWAY_FLAG, RESPONSE_FLAG, Command, encode_command
from cometmq.wire.frame.framing import JSON, ROCKETMQ
from tests.integration.remoting.remoting_kit import (
    CRASH,
    DEFER,
    ECHO,
    HOST,
    LARGE,
    NEED_TOPIC,
    REFUSE,
    UNSERVED,
    WAIT,
    Handlers,
    both_loops,
    connected,
    quick_limits,
    request,
    serving,
    soon,
)
from tests.waiting import eventually


@both_loops
async def test_a_request_is_answered_in_the_encoding_in_which_it_came() -> None:
    async with serving() as server, connected(server) as peer:
        for kind in (JSON, ROCKETMQ, JSON):
            answer = await peer.ask(ECHO, 7, body=b"hello", kind=kind)
            assert (answer.code, answer.opaque, bytes(answer.body)) == (0, 7, b"hello")
            assert (answer.serialize_type, answer.flag) == (kind, RESPONSE_FLAG)


@both_loops
async def test_a_handler_that_raises_gives_its_code_and_its_sentence() -> None:
    """N9: an error is answered with a code and a sentence, not with silence."""
    async with serving() as server, connected(server) as peer:
        answer = await peer.ask(REFUSE)
        assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "not today; come back tomorrow")


@both_loops
async def test_a_defect_in_a_handler_is_answered_in_short_and_logged_with_its_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server, connected(server) as peer:
        answer = await peer.ask(CRASH)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark is not None
        assert "its log says why" in answer.remark
        assert "ZeroDivisionError" not in answer.remark
        assert "Traceback" not in answer.remark
        assert (await peer.ask(ECHO)).code == 0
    assert any(record.exc_info for record in caplog.records)


@both_loops
async def test_an_unknown_code_is_answered_with_a_code() -> None:
    """N9."""
    async with serving() as server, connected(server) as peer:
        answer = await peer.ask(UNSERVED)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == f" request type {UNSERVED} not supported"


@both_loops
async def test_a_missing_field_is_named_in_the_answer() -> None:
    async with serving() as server, connected(server) as peer:
        answer = await peer.ask(NEED_TOPIC)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert "lacks its field `topic`" in answer.remark


@both_loops
async def test_a_one_way_request_is_never_answered_whatever_happens_to_it() -> None:
    handlers = Handlers()
    handlers.gate.set()
    async with serving(handlers) as server, connected(server) as peer:
        for code in (ECHO, REFUSE, CRASH, WAIT, UNSERVED, NEED_TOPIC):
            await peer.send(request(code, 1, body=b"one-way", flag=ONEWAY_FLAG))
        await peer.send(b"\x00\x00\x00\x20\x00\x00\x00\x1c" + b'{"opaque":1,"flag":2,"code":')
        await eventually(lambda: server.metrics.running == 0)
        answer = await peer.ask(ECHO, 99)
        assert answer.opaque == 99
        assert handlers.seen == [b"one-way", b"one-way", b"one-way", b""]
        assert server.metrics.codes[CRASH].oneways == 1
        assert server.metrics.codes[UNKNOWN_CODE].oneways == 1


@both_loops
async def test_answers_that_take_time_overtake_each_other_and_keep_their_opaque() -> None:
    handlers = Handlers()
    async with serving(handlers) as server, connected(server) as peer:
        await peer.send(request(WAIT, 1, body=b"slow") + request(ECHO, 2) + request(WAIT, 3, body=b"crash"))
        assert (await peer.answer()).opaque == 2
        await eventually(lambda: handlers.waiting == 2)
        assert server.metrics.running == 2
        handlers.gate.set()
        answers = {answer.opaque: answer for answer in (await peer.answer(), await peer.answer())}
        assert bytes(answers[1].body) == b"slow"
        assert answers[3].code == ResponseCode.SYSTEM_ERROR
        assert "its log says why" in str(answers[3].remark)
        assert server.metrics.running == 0


@both_loops
async def test_a_deferred_request_is_answered_when_its_time_has_come() -> None:
    handlers = Handlers()
    async with serving(handlers) as server, connected(server) as peer:
        await peer.send(request(DEFER, 5) + request(DEFER, 6, flag=ONEWAY_FLAG) + request(ECHO, 7))
        assert (await peer.answer()).opaque == 7
        for held, connection in handlers.deferred:
            connection.answer(held, Answer(ResponseCode.PULL_NOT_FOUND, remark="nothing came"))
        answer = await peer.answer()
        assert (answer.opaque, answer.code) == (5, ResponseCode.PULL_NOT_FOUND)
        assert (await peer.ask(ECHO, 8)).opaque == 8
        assert server.metrics.codes[DEFER].failures == {ResponseCode.PULL_NOT_FOUND: 2}


@both_loops
async def test_a_deferred_answer_to_a_peer_that_left_is_dropped() -> None:
    handlers = Handlers()
    async with serving(handlers) as server:
        async with connected(server) as peer:
            await peer.send(request(DEFER))
            await eventually(lambda: handlers.deferred)
        await eventually(lambda: not server.connections)
        held, connection = handlers.deferred[0]
        connection.answer(held, Answer())
        assert not connection.is_open


UNREADABLE = {
    "no JSON at all": b'{"opaque":41,"code":',
    "a number out of range": b'{"opaque":41,"code":3000000000}',
    "not UTF-8": b'{"opaque":41,"remark":"\xff"}',
    "nested without end": b'{"opaque":41,"x":' + b"[" * 2000,
}


@pytest.mark.parametrize("header", UNREADABLE.values(), ids=UNREADABLE)
@both_loops
async def test_an_unreadable_header_is_answered_and_the_connection_stays(header: bytes) -> None:
    async with serving() as server, connected(server) as peer:
        await peer.send((4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
        answer = await peer.answer()
        assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_ERROR, 41)
        assert answer.remark is not None
        assert answer.remark.startswith("the request cannot be read: ")
        assert (await peer.ask(ECHO, 42)).opaque == 42
        assert server.metrics.unreadable == 1


@both_loops
async def test_an_unreadable_header_without_opaque_is_answered_with_minus_one() -> None:
    async with serving() as server, connected(server) as peer:
        await peer.send(b"\x00\x00\x00\x06\x00\x00\x00\x02{}")
        assert (await peer.answer()).opaque == -1
        await peer.send(b"\x00\x00\x00\x06\x09\x00\x00\x02{}")
        answer = await peer.answer()
        assert answer.opaque == -1
        assert "serialize type 9" in str(answer.remark)


@both_loops
async def test_an_unreadable_binary_header_is_answered_in_binary() -> None:
    async with serving() as server, connected(server) as peer:
        whole = request(ECHO, 77, kind=ROCKETMQ)
        await peer.send(b"\x00\x00\x00\x12\x01\x00\x00\x0e" + whole[8:22])
        answer = await peer.answer()
        assert (answer.opaque, answer.code, answer.serialize_type) == (
            77,
            ResponseCode.SYSTEM_ERROR,
            ROCKETMQ,
        )


@both_loops
async def test_a_header_over_its_limit_is_answered_and_the_connection_stays() -> None:
    async with serving(limits=quick_limits(max_header_bytes=500)) as server, connected(server) as peer:
        await peer.send(encode_command(ECHO, 9, 0, {"k": "v" * 1000}))
        answer = await peer.answer()
        assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_ERROR, 9)
        assert "over the limit of 500" in str(answer.remark)
        assert (await peer.ask(ECHO, 10)).code == 0


@pytest.mark.parametrize(
    "broken",
    [
        b"\x01\x00\x00\x00",
        b"\x00\x00\x00\x02",
        b"\x00\x00\x00\x08\x00\x00\x00\x05",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["over the limit", "too short", "header over frame", "HTTP"],
)
@both_loops
async def test_broken_framing_closes_only_that_connection_after_the_answers_before_it(broken: bytes) -> None:
    async with serving() as server, connected(server) as peer, connected(server) as other:
        await peer.send(request(ECHO, 3, body=b"before") + broken)
        answer = await peer.answer()
        assert (answer.opaque, bytes(answer.body)) == (3, b"before")
        assert await soon(peer.end()) == b""
        peer.close()
        await eventually(lambda: server.metrics.closed == {"broken framing": 1})
        assert (await other.ask(ECHO, 4)).opaque == 4


@both_loops
async def test_answers_before_broken_framing_survive_unread_bytes_behind_it() -> None:
    """A close with unread bytes in the socket would reset the connection and destroy what is under way."""
    handlers = Handlers()
    handlers.large_answer = bytes(300_000)
    async with serving(handlers) as server, connected(server) as peer:
        await peer.send(request(LARGE, 1) * 10 + b"\xff" * 8 + bytes(200_000))
        for _ in range(10):
            assert len((await peer.answer()).body) == 300_000
        assert await soon(peer.end()) == b""


@both_loops
async def test_broken_framing_waits_for_the_answers_of_handlers_that_run() -> None:
    handlers = Handlers()
    async with serving(handlers) as server, connected(server) as peer:
        await peer.send(request(WAIT, 1, body=b"slow") + b"\xff" * 8 + request(ECHO, 2))
        await eventually(lambda: handlers.waiting)
        await peer.send(request(ECHO, 3) * 10)
        handlers.gate.set()
        answer = await peer.answer()
        assert (answer.opaque, bytes(answer.body)) == (1, b"slow")
        assert await soon(peer.end()) == b""
        assert handlers.seen == []


@both_loops
async def test_an_answer_that_nobody_waits_for_is_dropped_and_counted() -> None:
    async with serving() as server, connected(server) as peer:
        await peer.send(encode_command(0, 1234, RESPONSE_FLAG))
        assert (await peer.ask(ECHO)).code == 0
        assert server.metrics.unmatched == 1


@both_loops
async def test_an_unreadable_answer_is_not_answered() -> None:
    async with serving() as server, connected(server) as peer:
        await peer.send(b"\x00\x00\x00\x1b\x00\x00\x00\x17" + b'{"flag":1,"opaque":12,,')
        assert (await peer.ask(ECHO, 5)).opaque == 5
        assert (server.metrics.unreadable, server.metrics.unmatched) == (1, 1)


class Doorkeeper:
    """A hook that lets only some in, and trips over its own feet when told so."""

    def __init__(self) -> None:
        self.answered: list[tuple[int, int]] = []

    def before_request(self, request: Command, connection: Connection) -> Answer | None:
        if bytes(request.body) == b"stranger":
            return Answer(ResponseCode.NO_PERMISSION, remark="who are you?")
        if bytes(request.body) == b"thief":
            raise CometError("stay out", code=ResponseCode.NO_PERMISSION)
        return None

    def after_request(self, request: Command, answer: Answer, connection: Connection) -> None:
        self.answered.append((request.opaque, answer.code))
        if bytes(request.body) == b"banana":
            raise RuntimeError("slipped")


@both_loops
async def test_hooks_may_refuse_a_request_and_see_every_answer(caplog: pytest.LogCaptureFixture) -> None:
    handlers, hook = Handlers(), Doorkeeper()
    handlers.gate.set()
    async with serving(handlers, hooks=[hook]) as server, connected(server) as peer:
        assert (await peer.ask(ECHO, 1, body=b"friend")).code == 0
        assert (await peer.ask(ECHO, 2, body=b"stranger")).remark == "who are you?"
        assert (await peer.ask(ECHO, 3, body=b"thief")).code == ResponseCode.NO_PERMISSION
        assert (await peer.ask(WAIT, 4)).code == 0
        await peer.send(request(ECHO, 5, body=b"one-way", flag=ONEWAY_FLAG))
        assert (await peer.ask(UNSERVED, 6)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert (await peer.ask(ECHO, 7, body=b"banana")).code == 0
        refused = ResponseCode.NO_PERMISSION
        assert hook.answered == [
            (1, 0), (2, refused), (3, refused), (4, 0), (5, 0),
            (6, ResponseCode.REQUEST_CODE_NOT_SUPPORTED), (7, 0),
        ]  # fmt: skip
        assert handlers.seen == [b"friend", b"one-way", b"banana"]
    assert any("a hook failed" in record.message for record in caplog.records)


class Reader:
    """A hook that reads the custom fields, as one that checks signatures does."""

    def __init__(self) -> None:
        self.seen: list[dict[str, str | None]] = []

    def before_request(self, request: Command, connection: Connection) -> Answer | None:
        self.seen.append(request.fields())
        return None

    def after_request(self, request: Command, answer: Answer, connection: Connection) -> None:
        self.seen.append(request.fields())


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
@both_loops
async def test_hooks_see_the_custom_fields_of_a_request_whose_header_is_declared(kind: int) -> None:
    hook = Reader()
    async with serving(hooks=[hook]) as server, connected(server) as peer:
        fields = {"topic": "orders", "AccessKey": "me"}
        await peer.send(encode_command(NEED_TOPIC, 5, 0, fields, serialize_type=kind))
        assert bytes((await peer.answer()).body) == b"orders"
        assert hook.seen == [fields, fields]


async def _forgetful(*_: object) -> Answer:
    return None  # type: ignore[return-value]


def _bad_handlers() -> HandlerTable:
    """What handlers must not do."""
    table = HandlerTable()
    table.add(ECHO, NoHeader, lambda *_: None)  # type: ignore[arg-type]
    table.add(WAIT, NoHeader, _forgetful)
    table.add(REFUSE, NoHeader, lambda *_: Answer(body=None))  # type: ignore[arg-type]
    table.add(CRASH, NoHeader, lambda *_: Answer(code="0"))  # type: ignore[arg-type]
    table.add(LARGE, NoHeader, lambda *_: Answer(body=bytes(20_000)))
    table.add(DEFER, NoHeader, lambda *_: Answer(remark="half of a \ud83d"))
    return table


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
@both_loops
async def test_whatever_a_handler_gives_back_the_peer_gets_an_answer(
    kind: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    limits = quick_limits(max_frame_bytes=9000)
    async with serving(table=_bad_handlers(), limits=limits) as server, connected(server) as peer:
        for opaque, code in enumerate((ECHO, WAIT, REFUSE, CRASH)):
            answer = await peer.ask(code, opaque, kind=kind)
            assert (answer.opaque, answer.code) == (opaque, ResponseCode.SYSTEM_ERROR)
        answer = await peer.ask(LARGE, kind=kind)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "too large for a frame" in str(answer.remark)
        assert (await peer.ask(DEFER, kind=kind)).remark == "half of a ?"


@both_loops
async def test_with_too_many_handlers_running_a_request_is_answered_busy() -> None:
    handlers = Handlers()
    async with serving(handlers, limits=quick_limits(max_running=2)) as server, connected(server) as peer:
        await peer.send(b"".join(request(WAIT, opaque) for opaque in (1, 2, 3)))
        answer = await peer.answer()
        assert (answer.opaque, answer.code) == (3, ResponseCode.SYSTEM_BUSY)
        assert "[OVERLOAD]" in str(answer.remark)
        assert (await peer.ask(ECHO, 4)).code == 0
        handlers.gate.set()
        assert {(await peer.answer()).opaque, (await peer.answer()).opaque} == {1, 2}
        assert (await peer.ask(WAIT, 5)).code == 0


@both_loops
async def test_with_its_share_of_handlers_running_a_connection_waits_and_others_do_not() -> None:
    handlers = Handlers()
    limits = quick_limits(max_running_per_connection=2)
    async with (
        serving(handlers, limits=limits) as server,
        connected(server) as peer,
        connected(server) as other,
    ):
        await peer.send(b"".join(request(WAIT, opaque) for opaque in range(5)) + request(ECHO, 99))
        await eventually(lambda: handlers.waiting == 2)
        assert (await other.ask(ECHO)).code == 0
        assert handlers.waiting == 2
        handlers.gate.set()
        assert {(await peer.answer()).opaque for _ in range(6)} == {0, 1, 2, 3, 4, 99}


@both_loops
async def test_requests_are_counted_by_code_and_unknown_codes_together() -> None:
    handlers = Handlers()
    handlers.gate.set()
    async with serving(handlers) as server, connected(server) as peer:
        for opaque in range(3):
            await peer.ask(ECHO, opaque)
        for code in (REFUSE, REFUSE, CRASH, WAIT, 30_001, 30_002, 30_003):
            await peer.ask(code)
        metrics = deepcopy(server.metrics)
        await peer.ask(ECHO)
    assert metrics.codes.keys() == {ECHO, REFUSE, CRASH, WAIT, UNKNOWN_CODE}
    assert (metrics.codes[ECHO].requests, metrics.codes[ECHO].failures) == (3, {})
    assert metrics.codes[REFUSE].failures == {ResponseCode.NO_PERMISSION: 2}
    assert metrics.codes[CRASH].failures == {ResponseCode.SYSTEM_ERROR: 1}
    assert metrics.codes[UNKNOWN_CODE].failures == {ResponseCode.REQUEST_CODE_NOT_SUPPORTED: 3}
    assert metrics.codes[WAIT].longest_seconds > 0
    assert metrics.codes[ECHO].seconds >= metrics.codes[ECHO].longest_seconds
    assert (metrics.connections, metrics.accepted, metrics.refused) == (1, 1, 0)
    assert metrics.bytes_in > 0
    assert metrics.bytes_out > 0
    assert server.metrics.codes[ECHO].requests == 4


@both_loops
async def test_a_port_that_is_taken_is_a_clear_error() -> None:
    async with serving() as server:
        second = RemotingServer(host=HOST, port=server.port)
        with pytest.raises(CometError, match=f"cannot listen on {HOST}:{server.port}: .*choose another"):
            await second.start()
