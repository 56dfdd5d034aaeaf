"""Load generator: pre-encoded remoting frames at a fixed number in flight per connection.

It runs in a process of its own with one thread, and sends a new request for every answer. It does so little
with an answer that a run measures the server, not the generator; its own processor time, which shows that, is
part of every result. `cometmq bench` measures servers and clients together; this measures servers alone.

As a program:

    python -m bench.load.generator 127.0.0.1:9876 --frames FILE --connections 8 --in-flight 64 --seconds 5

FILE holds request frames one after the other, length prefixes included (`-` is standard input); they are
sent in turn, with opaques of the generator's own. `--dialogue NAME TOPIC` runs dialogues instead
(`bench/load/dialogue.py`). The result is one JSON object on standard output.
As a library: `run_load`, which starts that program.

`Shape` has the number of connections and of requests in flight. With `--in-turn` the latter is that of all
connections together, and requests go round-robin; `--idle` opens connections without requests. With `--watch`
the result has the processor time and the memory of that process in the measured time.

Rules kept here: a request counts if it is answered before the time is over. Later answers are awaited and
checked, but are part of no figure. Answers with a code other than 0 are counted as errors. A server that
closes a connection, or is silent for too long, ends the run with an error.
"""

from __future__ import annotations

import argparse
import gc
import resource
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from copy import copy
from itertools import cycle
from pathlib import Path

import msgspec

from bench.errors import BenchmarkError, LoadError
from bench.load.connection import RECEIVE_BUFFER_BYTES, Cycle, LoadConnection, Tally
from bench.load.dialogue import dialogues_in_this_process
from bench.load.frames import split
from bench.load.results import LoadResult, Shape, Window, load_result
from bench.load.usage import usage_of
from cometmq.cli.bench.figures import Latencies

_ROOT = Path(__file__).resolve().parents[2]
_ALL_BUFFERS_BYTES = 64 * 1024 * 1024
"""What the receive buffers of all connections may have together, as long as no answer is larger."""


class OpenLoad:
    """All connections of a run under one epoll."""

    def __init__(
        self,
        address: tuple[str, int],
        frames: Sequence[bytes],
        shape: Shape,
        silence_seconds: float,
    ) -> None:
        self._address = address
        self._in_flight = shape.in_flight
        self._silence_seconds = silence_seconds
        self._poller = select.epoll()
        self._by_fd: dict[int, LoadConnection] = {}
        self.tally = Tally()
        requests, connections = Cycle(frames, shape.in_flight), shape.connections
        receive_bytes = min(RECEIVE_BUFFER_BYTES, _ALL_BUFFERS_BYTES // connections)
        for number in range(connections):
            # Each begins elsewhere in the cycle, so that they do not all ask the same thing at once.
            first = number * requests.length // connections
            connection = LoadConnection(address, requests, first, self.tally, receive_bytes)
            self._by_fd[connection.socket.fileno()] = connection
            self._poller.register(connection.socket, select.EPOLLIN)
        self._idle = [_open(address) for _ in range(shape.idle)]
        # A single connection needs no poll: to wait in its `recv` is one system call less a turn.
        self._only = connection if connections == 1 else None
        self._turns = cycle(self._by_fd.values()) if shape.in_turn and connections > 1 else None

    def use_all(self) -> None:
        """Send one request on each connection: the cost of the first one is part of no figure."""
        connections = list(self._by_fd.values())
        for first in range(0, len(connections), self._in_flight):
            for connection in connections[first : first + self._in_flight]:
                connection.send_requests(1, time.perf_counter_ns())
                self._watch(connection)
            self.finish()
        self.tally.latency = Latencies()
        self.tally.answers = self.tally.bytes_in = self.tally.bytes_out = 0

    def begin(self) -> None:
        if self._turns is not None:
            self._send_in_turn(self._in_flight, time.perf_counter_ns())
            return
        for connection in self._by_fd.values():
            connection.send_requests(self._in_flight, time.perf_counter_ns())
            self._watch(connection)

    def carry_on_until(self, deadline_ns: int) -> None:
        """Send a request for every answer until the time is over."""
        silent_at_ns = self._silent_at_ns()
        while (now_ns := time.perf_counter_ns()) < deadline_ns:
            if self._take_turn(min(deadline_ns, silent_at_ns) - now_ns, sending=True):
                silent_at_ns = self._silent_at_ns()
            elif now_ns >= silent_at_ns:
                raise self._silence()

    def finish(self) -> None:
        """Wait for the answers that are still due."""
        silent_at_ns = self._silent_at_ns()
        while self._due():
            now_ns = time.perf_counter_ns()
            if self._take_turn(silent_at_ns - now_ns, sending=False):
                silent_at_ns = self._silent_at_ns()
            elif now_ns >= silent_at_ns:
                raise self._silence()

    def close(self) -> None:
        self._poller.close()
        for connection in self._by_fd.values():
            connection.socket.close()
        for idle in self._idle:
            idle.close()

    def _take_turn(self, wait_ns: int, sending: bool) -> int:
        """Wait for any connection and serve all that are ready; returns the number of answers."""
        if self._only is not None and not self._only.has_unsent:
            return self._serve(self._only, sending, patient=True)
        answered = 0
        for fd, events in self._poller.poll(max(wait_ns, 0) / 1e9):
            connection = self._by_fd[fd]
            if events & ~select.EPOLLOUT:
                answered += self._serve(connection, sending)
            if events & select.EPOLLOUT:
                connection.send_rest()
                self._watch(connection)
        return answered

    def _serve(self, connection: LoadConnection, sending: bool, *, patient: bool = False) -> int:
        connection.receive(patient=patient)
        now_ns = time.perf_counter_ns()
        answered = connection.take_answers(now_ns)
        if answered and sending:
            if self._turns is not None:
                self._send_in_turn(answered, now_ns)
                return answered
            connection.send_requests(answered, now_ns)
            if connection.has_unsent:
                self._watch(connection)
        return answered

    def _send_in_turn(self, count: int, now_ns: int) -> None:
        """Send requests round-robin over the connections."""
        assert self._turns is not None
        for _, connection in zip(range(count), self._turns, strict=False):
            connection.send_requests(1, now_ns)
            if connection.has_unsent:
                self._watch(connection)

    def _watch(self, connection: LoadConnection) -> None:
        writable = select.EPOLLOUT if connection.has_unsent else 0
        self._poller.modify(connection.socket, select.EPOLLIN | writable)

    def _due(self) -> int:
        return sum(connection.in_flight for connection in self._by_fd.values())

    def _silent_at_ns(self) -> int:
        return time.perf_counter_ns() + int(self._silence_seconds * 1e9)

    def _silence(self) -> LoadError:
        host, port = self._address
        waited = f"no answer for {self._silence_seconds:g} s"
        return LoadError(f"{host}:{port} with {self._due()} requests in flight: {waited}")


def _open(address: tuple[str, int]) -> socket.socket:
    try:
        return socket.create_connection(address, timeout=5.0)
    except OSError as problem:
        raise LoadError(f"no more connections to {address[0]}:{address[1]}: {problem}") from problem


def load_in_this_process(
    address: tuple[str, int],
    frames: Sequence[bytes],
    shape: Shape,
    seconds: float,
    silence_seconds: float = 10.0,
    watched: int | None = None,
) -> LoadResult:
    """Run the load here and now; `run_load` does it in a process of its own, which measures better."""
    load = OpenLoad(address, frames, shape, silence_seconds)
    # The collector would walk the cycle's frames again and again in the middle of the measurement.
    gc.collect()
    gc.freeze()
    try:
        if shape.in_turn:
            load.use_all()
        server_before = usage_of(watched) if watched else None
        cpu_before, begun_ns = time.process_time(), time.perf_counter_ns()
        load.begin()
        load.carry_on_until(begun_ns + int(seconds * 1e9))
        elapsed = (time.perf_counter_ns() - begun_ns) / 1e9
        cpu_seconds = time.process_time() - cpu_before
        server_after = usage_of(watched) if watched else None
        measured = copy(load.tally)
        load.tally.latency = Latencies()
        load.finish()
    finally:
        load.close()
        gc.unfreeze()
    window = Window(
        measured.answers,
        elapsed,
        measured.latency,
        cpu_seconds,
        server_before,
        server_after,
        measured.bytes_in,
        measured.bytes_out,
    )
    return load_result(shape, window, load.tally.error_codes, load.tally.first_error)


def run_load(
    address: tuple[str, int],
    what: Sequence[bytes] | tuple[str, str],
    shape: Shape,
    seconds: float,
    silence_seconds: float = 10.0,
    watched: int | None = None,
) -> LoadResult:
    """Send frames, or run a dialogue on a topic, in a process of its own, and wait for the result."""
    host, port = address
    command = [sys.executable, "-m", "bench.load.generator", f"{host}:{port}"]
    frames = [each for each in what if isinstance(each, bytes)]
    command += ["--frames", "-"] if frames else ["--dialogue", *map(str, what)]
    command += ["--connections", str(shape.connections), "--in-flight", str(shape.in_flight)]
    command += ["--in-turn"] if shape.in_turn else []
    command += ["--idle", str(shape.idle)]
    command += ["--seconds", str(seconds), "--silence-seconds", str(silence_seconds)]
    command += ["--watch", str(watched)] if watched else []
    finished = subprocess.run(command, cwd=_ROOT, input=b"".join(frames), capture_output=True, check=False)
    if finished.returncode != 0:
        raise LoadError(finished.stderr.decode(errors="replace").strip() or "the load generator died")
    return msgspec.json.decode(finished.stdout, type=LoadResult)


def _address(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host, int(port)


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return count


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.load.generator", description="Load a remoting server with pre-encoded frames."
    )
    parser.add_argument("address", type=_address, help="HOST:PORT of the server")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--frames", help="file of request frames, or - for standard input")
    what.add_argument("--dialogue", nargs=2, metavar=("NAME", "TOPIC"), help="transactions, pops, …")
    parser.add_argument("--connections", type=_count, default=1, help="default: %(default)s")
    parser.add_argument("--in-flight", type=_count, default=1, help="per connection; default: %(default)s")
    parser.add_argument(
        "--in-turn", action="store_true", help="--in-flight is of all together, which take turns"
    )
    parser.add_argument(
        "--idle", type=int, default=0, help="connections that say nothing; default: %(default)s"
    )
    parser.add_argument("--watch", type=int, metavar="PID", help="tell what this process used meanwhile")
    parser.add_argument("--seconds", type=float, default=5.0, help="default: %(default)s")
    parser.add_argument(
        "--silence-seconds",
        type=float,
        default=10.0,
        help="fail after so long without an answer; default: %(default)s",
    )
    return parser.parse_args(argv)


def _result(wanted: argparse.Namespace) -> LoadResult:
    shape = Shape(wanted.connections, wanted.in_flight, wanted.in_turn, wanted.idle)
    if wanted.dialogue:
        from bench.message_types.load import DIALOGUES  # frames need no dialogues

        name, topic = wanted.dialogue
        begin = DIALOGUES[name](topic)
        return dialogues_in_this_process(wanted.address, begin, shape, wanted.seconds, wanted.watch)
    stream = sys.stdin.buffer.read() if wanted.frames == "-" else Path(wanted.frames).read_bytes()
    frames = list(split(stream))
    return load_in_this_process(
        wanted.address, frames, shape, wanted.seconds, wanted.silence_seconds, wanted.watch
    )


def main(argv: Sequence[str] | None = None) -> int:
    wanted = _arguments(argv)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        result = _result(wanted)
    except (BenchmarkError, OSError) as problem:
        print(f"load failed: {problem}", file=sys.stderr)
        return 1
    print(msgspec.json.encode(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
