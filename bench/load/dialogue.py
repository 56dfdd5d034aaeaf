"""Load generator for dialogues: requests that depend on earlier answers, such as commits and acks.

Every slot of a connection has one dialogue: it sends requests, waits for all their answers, and uses them in
the next requests. `bench.load.generator` is the program that runs them.

Rules kept here: a dialogue counts if it ends before the time is over. Dialogues that are then open are
finished, so that nothing is left half done, but are part of no figure. An answer with an error ends the run.
A result has the processor time of the generator and of the watched process.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Generator

from bench.errors import LoadError
from bench.load.frames import Answer, read_answer
from bench.load.results import LoadResult, Shape, Window, load_result
from bench.load.usage import Usage, usage_of
from cometmq.cli.bench.figures import Latencies

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
