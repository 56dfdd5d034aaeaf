"""Load generator for dialogues: requests that depend on earlier answers, such as commits and acks.

It runs in a process of its own with one thread. Every slot of a connection has one dialogue: it sends
requests, waits for all their answers, and uses them in the next requests.

As a program:

    python -m bench.load.dialogue 127.0.0.1:10911 transactions TOPIC --connections 4 --in-flight 8 --seconds 5

The result is one JSON object on standard output. As a library: `run_dialogues`, which starts that program.

Rules kept here: a dialogue counts if it ends before the time is over. Dialogues that are then open are
finished, so that nothing is left half done, but are part of no figure. An answer with an error ends the run.
A result has the processor time of the generator and of the watched process.
"""

from __future__ import annotations

import argparse
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

import msgspec

from bench.errors import BenchmarkError, LoadError
from bench.load.frames import Answer, read_answer
from bench.load.results import LoadResult, Shape, Window, load_result
from bench.load.usage import Usage, usage_of
from cometmq.cli.bench.figures import Latencies

ROOT = Path(__file__).resolve().parents[2]
SILENCE_SECONDS = 10.0
READ_BYTES = 1 << 18
OPAQUES_OF_A_SLOT = 64

Request = Callable[[int], bytes]
"""A frame, given its opaque."""
Dialogue = Generator[list[Request], list[Answer], int]
"""Requests to send together, for their answers in the same order; in the end, how much was done."""


class _Slot:
    """One dialogue after the other."""

    def __init__(self, begin: Callable[[], Dialogue], number: int) -> None:
        self._begin = begin
        self._first_opaque = number * OPAQUES_OF_A_SLOT
        self._dialogue = begin()
        self._answers: list[Answer | None] = []
        self._due = 0
        self._begun_ns = 0

    def start(self) -> bytes:
        self._begun_ns = time.perf_counter_ns()
        self._dialogue = self._begin()
        return self._frames(next(self._dialogue))

    def take(self, answer: Answer, load: _Load) -> bytes:
        """Take an answer; returns the bytes to send."""
        self._answers[answer.opaque - self._first_opaque] = answer
        self._due -= 1
        if self._due:
            return b""
        try:
            return self._frames(self._dialogue.send([one for one in self._answers if one is not None]))
        except StopIteration as ended:
            return load.ended(self, ended.value, (time.perf_counter_ns() - self._begun_ns) // 1000)

    def _frames(self, requests: list[Request]) -> bytes:
        self._due = len(requests)
        self._answers = [None] * self._due
        first = self._first_opaque
        return b"".join(request(first + index) for index, request in enumerate(requests))


class _Connection:
    """A socket with its slots."""

    def __init__(self, address: tuple[str, int], begin: Callable[[], Dialogue], in_flight: int) -> None:
        self.socket = socket.create_connection(address, 5.0)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.slots = [_Slot(begin, number) for number in range(in_flight)]
        self._inbox = bytearray()

    def receive(self, load: _Load) -> None:
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise LoadError("the server closed the connection")
        inbox = self._inbox
        inbox += data
        at, out = 0, []
        while len(inbox) - at >= 4:
            end = at + 4 + int.from_bytes(inbox[at : at + 4], "big")
            if end > len(inbox):
                break
            answer = read_answer(memoryview(inbox)[at:end])
            out.append(self.slots[answer.opaque // OPAQUES_OF_A_SLOT].take(answer, load))
            at = end
        del inbox[:at]
        self.socket.sendall(b"".join(out))


class _Load:
    """All connections of a run."""

    def __init__(
        self, address: tuple[str, int], begin: Callable[[], Dialogue], shape: Shape, watched: int | None
    ) -> None:
        self._connections = [_Connection(address, begin, shape.in_flight) for _ in range(shape.connections)]
        self._going = shape.connections * shape.in_flight
        self._watched = watched
        self.done = 0
        self.latency = Latencies()
        self.sending = True

    def ended(self, slot: _Slot, done: int, latency_us: int) -> bytes:
        """Count a finished dialogue; returns the bytes to send."""
        if not self.sending:
            self._going -= 1
            return b""
        self.done += done
        self.latency.took_us(latency_us)
        return slot.start()

    def run(self, seconds: float) -> Window:
        """Run dialogues for a time, then finish the open ones; returns the figures of that time."""
        with selectors.DefaultSelector() as selector:
            server_before = self._look_at_server()
            cpu_before, begun = time.process_time(), time.perf_counter()
            for connection in self._connections:
                selector.register(connection.socket, selectors.EVENT_READ, connection)
                connection.socket.sendall(b"".join(slot.start() for slot in connection.slots))
            while (left := begun + seconds - time.perf_counter()) > 0:
                self._turn(selector, min(left, SILENCE_SECONDS))
            elapsed, cpu = time.perf_counter() - begun, time.process_time() - cpu_before
            server_after = self._look_at_server()
            self.sending = False
            while self._going:
                if not self._turn(selector, SILENCE_SECONDS):
                    raise LoadError(f"no answer for {SILENCE_SECONDS:g} s")
        return Window(self.done, elapsed, self.latency, cpu, server_before, server_after)

    def _look_at_server(self) -> Usage | None:
        return usage_of(self._watched) if self._watched else None

    def _turn(self, selector: selectors.BaseSelector, seconds: float) -> bool:
        ready = selector.select(seconds)
        for key, _ in ready:
            key.data.receive(self)
        return bool(ready)

    def close(self) -> None:
        for connection in self._connections:
            connection.socket.close()


def dialogues_in_this_process(
    address: tuple[str, int],
    begin: Callable[[], Dialogue],
    shape: Shape,
    seconds: float,
    watched: int | None = None,
) -> LoadResult:
    load = _Load(address, begin, shape, watched)
    try:
        return load_result(shape, load.run(seconds))
    finally:
        load.close()


def run_dialogues(
    address: tuple[str, int], what: str, topic: str, shape: Shape, seconds: float, watched: int | None = None
) -> LoadResult:
    """Run the load in a process of its own and wait for its result."""
    command = [sys.executable, "-m", "bench.load.dialogue", f"{address[0]}:{address[1]}", what, topic]
    command += ["--connections", str(shape.connections), "--in-flight", str(shape.in_flight)]
    command += ["--seconds", str(seconds)]
    command += ["--watch", str(watched)] if watched else []
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise LoadError(finished.stderr.strip() or "the load generator died")
    return msgspec.json.decode(finished.stdout, type=LoadResult)


def main() -> int:
    from bench.message_types.load import DIALOGUES  # it needs what is above

    parser = argparse.ArgumentParser(prog="python -m bench.load.dialogue")
    parser.add_argument("address", help="HOST:PORT of the broker")
    parser.add_argument("what", choices=sorted(DIALOGUES))
    parser.add_argument("topic")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--watch", type=int, metavar="PID")
    wanted = parser.parse_args()
    host, _, port = wanted.address.rpartition(":")
    try:
        begin = DIALOGUES[wanted.what](wanted.topic)
        shape = Shape(wanted.connections, wanted.in_flight)
        result = dialogues_in_this_process((host, int(port)), begin, shape, wanted.seconds, wanted.watch)
    except (BenchmarkError, OSError) as problem:
        print(f"load failed: {problem}", file=sys.stderr)
        return 1
    print(msgspec.json.encode(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
