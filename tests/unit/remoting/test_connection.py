"""A connection against a transport that only writes down what it is told: how often, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cometmq.remoting.connection import Connection
from cometmq.remoting.endpoint import Endpoint
from cometmq.remoting.handler import DEFERRED, Answer, Deferred, HandlerTable, NoHeader
from cometmq.remoting.limits import Limits
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import Command, decode_command, encode_command
from cometmq.wire.frame.framing import JSON, Frame, FrameSplitter

ECHO = RequestCode.GET_KV_CONFIG
DEFER = RequestCode.PUT_KV_CONFIG


class PaperTransport(asyncio.Transport):
    """Keeps what is written; with `capacity_bytes`, it is full after that much, until it is drained."""

    def __init__(self, protocol: asyncio.Protocol, capacity_bytes: int | None = None) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.log: list[str] = []
        self._protocol = protocol
        self._capacity_bytes = capacity_bytes
        self._high = 1 << 16
        self._full = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 99) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high or 0

    def get_write_buffer_size(self) -> int:
        return 0 if self._capacity_bytes is None else sum(map(len, self.writes))

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.writes.append(bytes(data))
        if self.get_write_buffer_size() > self._high and not self._full:
            self._full = True
            self._protocol.pause_writing()

    def drain(self) -> bytes:
        data = b"".join(self.writes)
        self.writes.clear()
        if self._full:
            self._full = False
            self._protocol.resume_writing()
        return data

    def pause_reading(self) -> None:
        self.log.append("pause")

    def resume_reading(self) -> None:
        self.log.append("resume")

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.log.append("eof")

    def close(self) -> None:
        self.log.append("close")

    def abort(self) -> None:
        self.log.append("abort")


def answers_in(data: bytes) -> list[Command]:
    splitter = FrameSplitter()
    splitter.feed(data)
    found = []
    while (frame := splitter.next_frame()) is not None:
        found.append(decode_command(frame))
    assert splitter.buffered_bytes == 0
    return found


def requests(opaques: range, body: bytes = b"") -> bytes:
    return b"".join(encode_command(ECHO, opaque, 0, body=body) for opaque in opaques)


class Bench:
    """An endpoint and one connection on a paper transport."""

    def __init__(self, *, capacity_bytes: int | None = None, **limits: Any) -> None:
        self.handled = 0
        table = HandlerTable()
        table.add(ECHO, NoHeader, self._echo)
        self.endpoint = Endpoint(limits=Limits(**limits), handlers=table)
        self.connection = Connection(self.endpoint, sniff=True)
        self.transport = PaperTransport(self.connection.channel, capacity_bytes)
        self.connection.channel.connection_made(self.transport)

    def _echo(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        self.handled += 1
        return Answer(body=bytes(request.body))


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    bench.connection.channel.connection_lost(None)
    await bench.endpoint.drain()


async def test_a_hundred_requests_in_one_segment_are_answered_with_one_write(bench: Bench) -> None:
    bench.connection.channel.data_received(requests(range(100)))
    (written,) = bench.transport.writes
    assert [answer.opaque for answer in answers_in(written)] == list(range(100))


async def test_whole_requests_and_a_part_are_answered_with_one_write_and_the_part_waits(bench: Bench) -> None:
    data = requests(range(11))
    cut = len(requests(range(10))) + 20
    bench.connection.channel.data_received(data[:cut])
    (first,) = bench.transport.writes
    assert len(answers_in(first)) == 10
    assert bench.endpoint.buffered_bytes == 20
    bench.connection.channel.data_received(data[cut:])
    assert [answer.opaque for answer in answers_in(bench.transport.writes[1])] == [10]
    assert bench.endpoint.buffered_bytes == 0


async def test_large_answers_are_written_in_portions_and_handling_stops_when_the_peer_takes_no_more() -> None:
    bench = Bench(capacity_bytes=0, write_high_bytes=100_000, write_low_bytes=1000)
    bench.connection.channel.data_received(requests(range(20), body=bytes(30_000)))
    assert bench.handled < 10
    assert bench.transport.get_write_buffer_size() < 100_000 + 4 * 31_000
    assert bench.transport.log == ["pause"]
    received: list[Command] = []
    while len(received) < 20:
        received += answers_in(bench.transport.drain())
    assert [answer.opaque for answer in received] == list(range(20))
    assert bench.transport.log[-1] == "resume"
    bench.connection.channel.connection_lost(None)
    await bench.endpoint.drain()


async def test_what_arrives_although_reading_was_stopped_keeps_its_order() -> None:
    """A transport may have read something before it was told to stop."""
    bench = Bench(capacity_bytes=0, write_high_bytes=1000, write_low_bytes=100)
    bench.connection.channel.data_received(requests(range(5), body=bytes(600)))
    late = requests(range(5, 9), body=bytes(600))
    bench.connection.channel.data_received(late[:700])
    bench.connection.channel.data_received(late[700:])
    received: list[Command] = []
    while len(received) < 9:
        received += answers_in(bench.transport.drain())
    assert [answer.opaque for answer in received] == list(range(9))
    bench.connection.channel.connection_lost(None)
    await bench.endpoint.drain()


async def test_calls_of_one_turn_are_written_together_and_the_first_at_once(bench: Bench) -> None:
    bench.connection.channel.data_received(requests(range(1)))
    bench.transport.drain()
    calls = [bench.connection.call(ECHO, {"n": str(number)}, timeout_s=5) for number in range(10)]
    (first,) = bench.transport.writes
    assert [call.fields() for call in answers_in(first)] == [{"n": "0"}]
    await asyncio.sleep(0)
    (_, others) = bench.transport.writes
    assert [call.fields()["n"] for call in answers_in(others)] == [str(number) for number in range(1, 10)]
    for call in calls:
        bench.connection.forget(call)
    assert bench.endpoint.calls_in_flight == 0


async def test_a_large_call_does_not_wait_for_the_end_of_the_turn(bench: Bench) -> None:
    bench.connection.channel.data_received(requests(range(1)))
    bench.transport.drain()
    calls = [bench.connection.call(ECHO, None, bytes(70_000), timeout_s=5) for _ in range(3)]
    assert len(answers_in(b"".join(bench.transport.writes))) == 3
    for call in calls:
        bench.connection.forget(call)


async def test_deferred_answers_of_one_turn_are_written_together(bench: Bench) -> None:
    kept: list[Command] = []

    def keep(header: NoHeader, request: Command, connection: Connection) -> Deferred:
        kept.append(request)
        return DEFERRED

    bench.endpoint.handlers.add(DEFER, NoHeader, keep)
    bench.connection.channel.data_received(b"".join(encode_command(DEFER, opaque, 0) for opaque in range(50)))
    assert bench.transport.writes == []
    for request in kept:
        bench.connection.answer(request, Answer(body=b"done"))
    await asyncio.sleep(0)
    (written,) = bench.transport.writes
    assert [answer.opaque for answer in answers_in(written)] == list(range(50))


async def test_what_waits_for_the_end_of_the_turn_is_written_before_an_orderly_close(bench: Bench) -> None:
    bench.connection.channel.data_received(requests(range(1)))
    request = decode_command(Frame(JSON, b'{"code":1,"opaque":9}', memoryview(b"")))
    bench.connection.answer(request, Answer())
    bench.connection.close("test")
    assert [answer.opaque for answer in answers_in(b"".join(bench.transport.writes))] == [0, 9]
    assert bench.transport.log == ["eof"]
    bench.connection.answer(request, Answer())
    await asyncio.sleep(0)
    assert len(answers_in(b"".join(bench.transport.writes))) == 2, "nothing is written behind the end"


async def test_a_close_writes_the_answers_first_and_ends_our_side_before_the_peers(bench: Bench) -> None:
    bench.connection.channel.data_received(requests(range(2)) + b"\xff" * 8)
    assert len(answers_in(b"".join(bench.transport.writes))) == 2
    assert bench.transport.log == ["eof"]
    bench.connection.channel.data_received(requests(range(3)))
    assert bench.handled == 2  # what comes behind broken framing is dropped


async def test_a_lingering_close_comes_to_an_end(bench: Bench) -> None:
    bench.connection.channel.data_received(requests(range(1)))
    bench.connection.close("test")
    now = asyncio.get_running_loop().time()
    bench.connection.channel.check_health(now + 0.5)
    assert bench.transport.log == ["eof"]
    bench.connection.channel.check_health(now + 1.5)
    assert bench.transport.log == ["eof", "abort"]


async def test_the_first_unwritten_bytes_are_no_slow_reader() -> None:
    """A look at a connection whose very first answer was written a moment ago must not close it."""
    bench = Bench(capacity_bytes=0)
    bench.connection.channel.data_received(requests(range(1)))
    now = asyncio.get_running_loop().time()
    bench.connection.channel.check_health(now)
    assert bench.connection.is_open
    bench.connection.channel.check_health(now + 29)
    assert bench.connection.is_open
    bench.connection.channel.check_health(now + 31)
    assert not bench.connection.is_open
    assert bench.connection.close_reason == "slow reader"
    bench.connection.channel.connection_lost(None)
    await bench.endpoint.drain()


async def test_a_connection_made_after_the_stop_is_refused(bench: Bench) -> None:
    """A listener may still hand one over that it had accepted before."""
    bench.connection.channel.connection_lost(None)
    await bench.endpoint.drain()
    late = Connection(bench.endpoint, sniff=True)
    transport = PaperTransport(late.channel)
    late.channel.connection_made(transport)
    assert transport.log == ["abort"]
    assert bench.endpoint.metrics.refused == 1
    assert not bench.endpoint.connections
    late.channel.connection_lost(None)
    bench.endpoint.connections.clear()


async def test_opaques_wrap_around_within_31_bits() -> None:
    endpoint = Endpoint()
    assert [endpoint.next_opaque() for _ in range(3)] == [0, 1, 2]
    endpoint._opaques = iter(range(2**31 - 1, 2**31 + 1))  # type: ignore[assignment]
    assert [endpoint.next_opaque() for _ in range(2)] == [2**31 - 1, 0]
