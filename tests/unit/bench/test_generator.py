"""The load generator against servers that misbehave in every way it has to survive or to report."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from bench.errors import FrameError, LoadError
from bench.load.frames import (
    Caller,
    binary_request,
    json_request,
    read_answer,
    renumbered,
    split,
)
from bench.load.generator import load_in_this_process, run_load
from bench.load.results import LoadResult, Shape

REQUESTS = [json_request(105, {"topic": f"topic-{number}"}) for number in range(10)]
BINARY_REQUESTS = [binary_request(105, {"topic": f"topic-{number}"}) for number in range(10)]

Serve = Callable[[socket.socket, Iterator[int]], None]


def json_answer(
    opaque: int, code: int = 0, body: bytes = b"body", remark: str = "", fields: dict[str, str] | None = None
) -> bytes:
    header = {"code": code, "extFields": fields or {}, "flag": 1, "opaque": opaque, "remark": remark}
    text = json.dumps(header, separators=(",", ":")).encode()
    return b"".join((len(text + body + b"1234").to_bytes(4, "big"), len(text).to_bytes(4, "big"), text, body))


def binary_answer(opaque: int) -> bytes:
    frame = bytearray(binary_request(0, {}, b"body", opaque))
    frame[20] = 1  # the last byte of the flag: a response
    return bytes(frame)


def opaques_of(stream: socket.socket) -> Iterator[int]:
    """The opaques of the requests of a connection, until it ends."""
    reader = stream.makefile("rb")
    while length := reader.read(4):
        yield read_answer(length + reader.read(int.from_bytes(length, "big"))).opaque


@contextmanager
def server(serve: Serve) -> Iterator[tuple[str, int]]:
    """A server that treats each connection as `serve` says, on a thread each."""
    threads: list[threading.Thread] = []

    def treat(stream: socket.socket) -> None:
        with stream:
            try:
                serve(stream, opaques_of(stream))
            except OSError:
                pass  # the generator is free to leave

    def accept() -> None:
        while True:
            try:
                stream, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=treat, args=(stream,)))
            threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads.append(threading.Thread(target=accept))
        threads[0].start()
        try:
            yield listener.getsockname()
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


def answer_at_once(stream: socket.socket, opaques: Iterator[int]) -> None:
    for opaque in opaques:
        stream.sendall(json_answer(opaque))


def load(serve: Serve, connections: int = 1, in_flight: int = 4, seconds: float = 0.2) -> LoadResult:
    with server(serve) as address:
        shape = Shape(connections, in_flight)
        return load_in_this_process(address, REQUESTS, shape, seconds, silence_seconds=0.3)


@pytest.mark.parametrize(("connections", "in_flight"), [(1, 1), (1, 8), (4, 16)])
def test_every_request_is_answered_and_counted_once(connections: int, in_flight: int) -> None:
    answered: list[int] = []

    def serve(stream: socket.socket, opaques: Iterator[int]) -> None:
        for opaque in opaques:
            stream.sendall(json_answer(opaque))
            answered.append(opaque)

    result = load(serve, connections, in_flight)
    assert result.errors == 0
    assert 0 < result.requests <= len(answered) <= result.requests + connections * in_flight
    found = result.latency_ms
    assert 0 < found.p50 <= found.p99 <= found.p999 <= found.max
    assert result.rate == pytest.approx(result.requests / result.seconds)


def whole_frames(received: bytes) -> list[bytes]:
    """All frames; none as long as a part of one is under way."""
    try:
        return list(split(received))
    except FrameError:
        return []


def test_no_more_than_the_wanted_number_is_in_flight() -> None:
    first_requests: list[bytes] = []

    def serve(stream: socket.socket, opaques: Iterator[int]) -> None:
        received = b""
        while len(whole_frames(received)) < 6:
            received += stream.recv(65536)
        stream.settimeout(0.1)  # for more than that, which must not come
        with suppress(TimeoutError):
            received += stream.recv(65536)
        stream.settimeout(None)
        first_requests.extend(split(received))
        for frame in first_requests:
            stream.sendall(json_answer(read_answer(frame).opaque))
        answer_at_once(stream, opaques)

    assert load(serve, in_flight=6).requests > 6
    assert len(first_requests) == 6


def test_answers_cut_into_single_bytes_are_put_together() -> None:
    def serve(stream: socket.socket, opaques: Iterator[int]) -> None:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for opaque in opaques:
            for byte in json_answer(opaque):
                stream.sendall(bytes((byte,)))

    assert load(serve, in_flight=2).requests > 0


def test_an_answer_larger_than_the_buffer_is_taken() -> None:
    body = bytes(1_000_000)

    def serve(stream: socket.socket, opaques: Iterator[int]) -> None:
        for opaque in opaques:
            stream.sendall(json_answer(opaque, body=body))

    result = load(serve, in_flight=2)
    assert result.requests > 0
    assert result.bytes_in >= result.requests * len(body)


def test_answers_in_any_order_and_late_ones_find_their_request() -> None:
    def serve(stream: socket.socket, opaques: Iterator[int]) -> None:
        held = next(opaques)
        for number, opaque in enumerate(opaques):
            stream.sendall(json_answer(opaque))
            if number == 200:  # the cycle has gone round many times since
                stream.sendall(json_answer(held))

    result = load(serve, in_flight=4)
    assert result.requests > 200
    assert result.latency_ms.max > 2 * result.latency_ms.p50


def test_both_header_forms_are_understood() -> None:
    def serve(stream: socket.socket, opaques: Iterator[int]) -> None:
        for opaque in opaques:
            stream.sendall(binary_answer(opaque) if opaque % 2 else json_answer(opaque))

    with server(serve) as address:
        result = load_in_this_process(address, BINARY_REQUESTS, Shape(1, 4), 0.2, silence_seconds=0.3)
    assert result.requests > 20
    assert result.errors == 0


def test_every_answer_with_another_code_is_counted_as_an_error() -> None:
    refused = 0

    def serve(stream: socket.socket, opaques: Iterator[int]) -> None:
        nonlocal refused
        for number, opaque in enumerate(opaques):
            code = 17 if number % 10 == 9 else 0
            refused += bool(code)
            stream.sendall(json_answer(opaque, code, remark="no route" if code else ""))

    result = load(serve)
    assert refused > 2
    assert result.errors == refused
    assert result.error_codes == {"17": refused}
    assert result.first_error == "code 17: no route"


def test_requests_of_the_server_are_not_answers() -> None:
    def serve(stream: socket.socket, opaques: Iterator[int]) -> None:
        for opaque in opaques:
            stream.sendall(json_request(40, {"consumerGroup": "g"}, opaque=opaque) + json_answer(opaque))

    result = load(serve)
    assert result.requests > 20
    assert result.errors == 0


def test_fields_before_the_opaque_may_change_from_answer_to_answer() -> None:
    def serve(stream: socket.socket, opaques: Iterator[int]) -> None:
        for number, opaque in enumerate(opaques):
            stream.sendall(json_answer(opaque, fields={"queueOffset": str(number)}))

    result = load(serve)
    assert result.requests > 100
    assert result.errors == 0


def test_a_closed_connection_ends_the_run_with_an_error() -> None:
    def serve(stream: socket.socket, opaques: Iterator[int]) -> None:
        for _, opaque in zip(range(50), opaques, strict=False):
            stream.sendall(json_answer(opaque))

    with pytest.raises(LoadError, match="in flight: the server closed the connection"):
        load(serve)


@pytest.mark.parametrize("connections", [1, 3])
def test_a_silent_server_ends_the_run_with_an_error(connections: int) -> None:
    def serve(stream: socket.socket, opaques: Iterator[int]) -> None:
        for _ in opaques:
            pass

    with pytest.raises(LoadError, match=f"{connections * 4} requests in flight: no answer for 0.3 s"):
        load(serve, connections, seconds=5)


def test_an_answer_that_nobody_asked_for_ends_the_run_with_an_error() -> None:
    def serve(stream: socket.socket, opaques: Iterator[int]) -> None:
        for opaque in opaques:
            stream.sendall(json_answer(opaque) * 2)

    with pytest.raises(LoadError, match="which was not asked"):
        load(serve)


def test_bytes_that_are_no_frames_end_the_run_with_an_error() -> None:
    def serve(stream: socket.socket, opaques: Iterator[int]) -> None:
        next(opaques)
        stream.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        for _ in opaques:
            pass

    with pytest.raises(LoadError, match="a frame of"):
        load(serve)


def test_requests_that_the_socket_does_not_take_at_once_are_sent_later() -> None:
    frames = [json_request(310, {"topic": "t"}, bytes(400_000))]

    with server(answer_at_once) as address:
        result = load_in_this_process(address, frames, Shape(1, 16), 0.5)
    assert result.requests > 16
    assert result.errors == 0


def test_the_library_call_runs_in_a_process_of_its_own() -> None:
    with server(answer_at_once) as address:
        result = run_load(address, REQUESTS, Shape(2, 4), seconds=0.2)
    assert (result.connections, result.in_flight) == (2, 4)
    assert result.requests > 0
    assert 0 < result.cpu_seconds <= result.seconds


def test_the_library_call_reports_what_went_wrong() -> None:
    with server(answer_at_once) as address:
        pass
    with pytest.raises(LoadError, match="no connection"):
        run_load(address, REQUESTS, Shape(1, 1), seconds=0.1)


def test_a_caller_gets_the_answer_in_full() -> None:
    with server(answer_at_once) as address:
        caller = Caller(address)
        answer = caller.ask(json_request(105, {"topic": "t"}, opaque=7))
        caller.close()
    assert (answer.code, answer.opaque, answer.is_response, answer.body) == (0, 7, True, b"body")


@pytest.mark.parametrize("frame", [REQUESTS[3], BINARY_REQUESTS[3]])
def test_a_renumbered_frame_differs_in_its_opaque_alone(frame: bytes) -> None:
    again = renumbered(frame, 1_234_567)
    assert read_answer(again).opaque == 1_234_567
    assert renumbered(again, 0) == frame
    assert list(split(again + frame)) == [again, frame]


def test_a_cut_frame_is_refused() -> None:
    with pytest.raises(FrameError, match="no whole frame at byte"):
        list(split(REQUESTS[0] + REQUESTS[1][:-1]))


def test_connections_in_turn_are_all_used_and_have_no_more_in_flight_together_than_wanted() -> None:
    used: dict[int, int] = {}

    def serve(stream: socket.socket, opaques: Iterator[int]) -> None:
        for opaque in opaques:
            stream.sendall(json_answer(opaque))
            used[stream.fileno()] = used.get(stream.fileno(), 0) + 1

    with server(serve) as address:
        result = load_in_this_process(address, REQUESTS, Shape(12, 3, in_turn=True), 0.2)
    assert len(used) == 12
    assert max(used.values()) - min(used.values()) <= 3
    # Each connection was used once before the time began.
    assert result.requests + 12 <= sum(used.values()) <= result.requests + 12 + 3


def test_idle_connections_are_open_and_say_nothing() -> None:
    connected, spoken = set[int](), set[int]()
    all_are_there = threading.Event()

    def serve(stream: socket.socket, opaques: Iterator[int]) -> None:
        connected.add(stream.fileno())
        if len(connected) == 6:
            all_are_there.set()
        for opaque in opaques:
            spoken.add(stream.fileno())
            assert all_are_there.wait(5)
            stream.sendall(json_answer(opaque))

    with server(serve) as address:
        load_in_this_process(address, REQUESTS, Shape(1, 4, idle=5), 0.2)
    assert (len(connected), len(spoken)) == (6, 1)


def test_a_watched_server_is_part_of_the_result() -> None:
    with server(answer_at_once) as address:
        result = run_load(address, REQUESTS, Shape(1, 4), seconds=0.3, watched=os.getpid())
    assert result.server_cpu_seconds > 0
    assert 0 < result.server_private_mb <= result.server_resident_mb
