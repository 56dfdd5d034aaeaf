"""Requests that came one behind the other are handled together, and answered as if they were not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from cometmq.remoting.connection import Connection
from cometmq.remoting.endpoint import Endpoint
from cometmq.remoting.handler import (
    DEFERRED,
    Answer,
    GroupResult,
    HandlerTable,
    RequestHook,
    handles,
    handles_groups,
)
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import ONEWAY_FLAG, Command, encode_command, encode_response_head
from cometmq.wire.frame.framing import JSON, ROCKETMQ
from cometmq.wire.headers.namesrv import GetKVConfigRequest
from tests.unit.remoting.test_connection import PaperTransport, answers_in

CODE = RequestCode.GET_KV_CONFIG
FIELDS = {"namespace": "n", "key": "k"}


def ask(opaque: int, key: str = "k", flag: int = 0, serialize_type: int = JSON) -> bytes:
    fields = {"namespace": "n", "key": key}
    return encode_command(CODE, opaque, flag, fields, body=b"body", serialize_type=serialize_type)


class Family:
    """A handler and one of runs, which write down what they are given."""

    def __init__(self) -> None:
        self.runs: list[list[int]] = []
        self.alone: list[int] = []
        self.kept: list[Command] = []
        self.on_run: Callable[[list[int]], object] = id
        self.on_one: Callable[[int], object] = id

    @handles(CODE, GetKVConfigRequest)
    def one(self, header: GetKVConfigRequest, request: Command, connection: Connection) -> Answer:
        self.alone.append(request.opaque)
        self.on_one(request.opaque)
        return Answer(remark="alone")

    @handles_groups(CODE)
    def many(self, requests: Sequence[Command], connection: Connection) -> Sequence[GroupResult]:
        self.runs.append([request.opaque for request in requests])
        self.on_run(self.runs[-1])
        results: list[GroupResult] = []
        for request in requests:
            header = request.header(GetKVConfigRequest)
            if header.key == "fail":
                raise RuntimeError("a defect")
            if header.key == "later":
                self.kept.append(request)
                results.append(DEFERRED)
            elif header.key == "refuse":
                results.append(Answer(1, remark="refused"))
            elif request.flag:
                results.append(Answer())
            else:
                results.append(encode_response_head(request.opaque, remark="together"))
        return results


class Bench:
    """An endpoint with that family, and a connection."""

    def __init__(self, hooks: Sequence[RequestHook] = ()) -> None:
        self.family = Family()
        table = HandlerTable()
        table.add_handlers(self.family)
        self.endpoint = Endpoint(handlers=table, hooks=hooks)
        self.connection = Connection(self.endpoint, sniff=True)
        self.transport = PaperTransport(self.connection.channel)
        self.connection.channel.connection_made(self.transport)

    def answers(self) -> list[tuple[int, int, str | None]]:
        return [(answer.opaque, answer.code, answer.remark) for answer in answers_in(self.transport.drain())]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    bench.connection.channel.connection_lost(None)
    await bench.endpoint.drain()


async def test_what_comes_in_one_read_is_one_run_and_one_write(bench: Bench) -> None:
    bench.connection.channel.data_received(b"".join(map(ask, range(5))))
    assert bench.family.runs == [[0, 1, 2, 3, 4]]
    (_,) = bench.transport.writes
    assert bench.answers() == [(opaque, 0, "together") for opaque in range(5)]
    metrics = bench.endpoint.metrics.of(CODE)
    assert (metrics.requests, metrics.failures) == (5, {})
    assert 0 < metrics.longest_seconds <= metrics.seconds


async def test_a_single_request_is_a_run_of_one(bench: Bench) -> None:
    bench.connection.channel.data_received(ask(7))
    assert bench.family.runs == [[7]]
    assert bench.answers() == [(7, 0, "together")]


async def test_a_run_ends_before_a_part_of_a_request_and_the_next_begins_with_it(bench: Bench) -> None:
    data = b"".join(map(ask, range(6)))
    cut = len(data) // 2 + 10
    bench.connection.channel.data_received(data[:cut])
    bench.connection.channel.data_received(data[cut:])
    assert [opaque for run in bench.family.runs for opaque in run] == list(range(6))
    assert len(bench.family.runs) == 2
    assert len(bench.answers()) == 6
    assert bench.endpoint.buffered_bytes == 0


async def test_a_run_is_bounded(bench: Bench) -> None:
    bench.connection.channel.data_received(b"".join(map(ask, range(1000))))
    assert max(map(len, bench.family.runs)) <= 256
    assert [opaque for run in bench.family.runs for opaque in run] == list(range(1000))
    assert [opaque for opaque, _, _ in bench.answers()] == list(range(1000))


async def test_other_requests_in_between_are_served_in_their_turn(bench: Bench) -> None:
    """Binary headers, other codes, and what cannot be read; one-way requests are part of a run."""
    unreadable = ask(9).replace(b'"opaque":9', b'"opaque"=9')
    other = encode_command(RequestCode.GET_NAMESRV_CONFIG, 8, 0)
    frames = [
        ask(0),
        ask(1),
        ask(2, flag=ONEWAY_FLAG),
        ask(3),
        ask(4, serialize_type=ROCKETMQ),
        ask(5),
        other,
    ]
    bench.connection.channel.data_received(b"".join([*frames, ask(6), unreadable, ask(7)]))
    assert bench.family.runs == [[0, 1, 2, 3], [5], [6], [7]]
    assert bench.family.alone == [4]
    answers = bench.answers()
    assert [opaque for opaque, _, _ in answers][:6] == [0, 1, 3, 4, 5, 8]
    assert [opaque for opaque, _, remark in answers if remark == "together"] == [0, 1, 3, 5, 6, 7]
    assert len(answers) == 9
    assert bench.endpoint.metrics.of(CODE).oneways == 1


async def test_a_handler_of_runs_may_refuse_some_and_answer_others_later(bench: Bench) -> None:
    keys = ["k", "later", "refuse", "later", "k"]
    bench.connection.channel.data_received(b"".join(map(ask, range(5), keys)))
    assert sorted(bench.answers()) == [(0, 0, "together"), (2, 1, "refused"), (4, 0, "together")]
    assert bench.endpoint.metrics.of(CODE).requests == 5
    assert bench.endpoint.metrics.of(CODE).failures == {1: 1}
    kept = bench.family.kept
    bench.connection.answer_group(
        kept[0], [encode_response_head(each.opaque, remark="late") for each in kept]
    )
    bench.connection.channel.flush()
    assert bench.answers() == [(1, 0, "late"), (3, 0, "late")]
    assert sum(bench.endpoint.metrics.of(CODE).late_times[0].latencies) == 2


async def test_a_defect_in_a_handler_of_runs_is_answered(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.connection.channel.data_received(b"".join(map(ask, range(3), ["k", "fail", "k"])))
    answers = bench.answers()
    assert [(opaque, code) for opaque, code, _ in answers] == [(0, 1), (1, 1), (2, 1)]
    assert {remark for _, _, remark in answers} == {
        "the server failed at this request, and its log says why; show that to whoever runs it"
    }
    assert "request 101 of" in caplog.text
    assert "a defect" in caplog.text
    bench.connection.channel.data_received(ask(4))
    assert bench.answers() == [(4, 0, "together")]


async def test_what_is_left_to_be_done_is_done_when_the_answers_are_written(bench: Bench) -> None:
    """Once for the read, and the peer has its answers by then."""
    seen: list[int] = []
    bench.family.on_run = lambda _: bench.connection.do_afterwards(
        lambda: seen.append(len(bench.transport.writes))
    )
    bench.connection.channel.data_received(b"".join(map(ask, range(5))))
    assert seen == [1]


async def test_what_is_left_to_be_done_is_done_before_anything_else_is_handled(bench: Bench) -> None:
    """Also before a request that is served in the middle of a run, and before broken framing is refused."""
    seen: list[str] = []

    def leave(opaques: list[int]) -> None:
        seen.append(f"run {opaques}")
        bench.connection.do_afterwards(lambda: seen.append(f"behind {opaques}"))

    bench.family.on_run = leave
    bench.family.on_one = lambda opaque: seen.append(f"one {opaque}")
    frames = [ask(0), ask(1, flag=ONEWAY_FLAG), ask(2), ask(3, serialize_type=ROCKETMQ), ask(4), b"\xff" * 8]
    bench.connection.channel.data_received(b"".join(frames))
    assert seen == [
        *("run [0, 1, 2]", "behind [0, 1, 2]"),
        *("one 3", "run [4]", "behind [4]"),
    ]


async def test_what_cannot_be_done_is_logged_and_the_rest_is_done(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []

    def leave(opaques: list[int]) -> None:
        bench.connection.do_afterwards(lambda: seen.append(1 // 0))
        bench.connection.do_afterwards(lambda: seen.append(2))

    bench.family.on_run = leave
    bench.connection.channel.data_received(ask(0))
    assert seen == [2]
    assert "what was left to be done for 192.0.2.1:99 failed" in caplog.text
    assert len(bench.answers()) == 1


async def test_with_hooks_every_request_is_served_alone() -> None:
    class Hook:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def before_request(self, request: Command, connection: Connection) -> Answer | None:
            return None

        def after_request(self, request: Command, answer: Answer, connection: Connection) -> None:
            self.seen.append(request.opaque)

    hook = Hook()
    bench = Bench([hook])
    bench.connection.channel.data_received(b"".join(map(ask, range(3))))
    assert hook.seen == bench.family.alone == [0, 1, 2]
    assert bench.family.runs == []
    bench.connection.channel.connection_lost(None)
    await bench.endpoint.drain()
