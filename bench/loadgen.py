"""Load generator: pre-encoded remoting frames at a fixed number in flight per connection.

It runs in a process of its own with one thread, sends as many new requests as answers came in, and does
so little with an answer that the server, not the generator, is what a run measures. Its own processor
time is part of every result, so that a reader can see that this held.

As a program:

    python -m bench.loadgen 127.0.0.1:9876 --frames FILE --connections 8 --in-flight 64 --seconds 5

FILE holds request frames one after the other, length prefixes included (`-` is standard input); they are
sent in turn, with opaques of the generator's own. The result is one JSON object on standard output.
As a library: `run_load`, which starts that program.

Rules kept here: a request counts when it is answered before the time is over; the answers still due then
are waited for and checked, but are part of no figure. Answers with a code other than 0 are counted as
errors. A server that closes a connection, or is silent for too long, ends the run with an error.
"""

from __future__ import annotations

import argparse
import gc
import json
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.connection import Cycle, LoadConnection, Tally
from bench.errors import BenchmarkError, LoadError
from bench.frames import split
from bench.latency import LatencyHistogram

_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a run showed. Latencies are per request, from `send` to the answer's arrival."""

    connections: int
    in_flight: int
    requests: int
    seconds: float
    rate: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    errors: int
    error_codes: dict[str, int] = field(default_factory=dict)
    first_error: str = ""
    bytes_in: int = 0
    bytes_out: int = 0
    cpu_seconds: float = 0.0

    @property
    def cpu_share(self) -> float:
        """The part of one core that the generator itself used."""
        return self.cpu_seconds / self.seconds if self.seconds else 0.0


class _Load:
    """All connections of a run under one epoll."""

    def __init__(
        self,
        address: tuple[str, int],
        frames: Sequence[bytes],
        connections: int,
        in_flight: int,
        silence_seconds: float,
    ) -> None:
        self._address = address
        self._in_flight = in_flight
        self._silence_seconds = silence_seconds
        self._poller = select.epoll()
        self._by_fd: dict[int, LoadConnection] = {}
        self.tally = Tally()
        cycle = Cycle(frames, in_flight)
        for number in range(connections):
            # Each begins elsewhere in the cycle, so that they do not all ask the same thing at once.
            connection = LoadConnection(address, cycle, number * cycle.length // connections, self.tally)
            self._by_fd[connection.socket.fileno()] = connection
            self._poller.register(connection.socket, select.EPOLLIN)
        # A single connection needs no poll: to wait in its `recv` is one system call less a turn.
        self._only = connection if connections == 1 else None

    def begin(self) -> None:
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

    def _take_turn(self, wait_ns: int, sending: bool) -> int:
        """Wait for any connection and serve every one that is ready; the number of answers."""
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
            connection.send_requests(answered, now_ns)
            if connection.has_unsent:
                self._watch(connection)
        return answered

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


def load_in_this_process(
    address: tuple[str, int],
    frames: Sequence[bytes],
    connections: int,
    in_flight: int,
    seconds: float,
    silence_seconds: float = 10.0,
) -> LoadResult:
    """Run the load here and now; `run_load` does it in a process of its own, which measures better."""
    load = _Load(address, frames, connections, in_flight, silence_seconds)
    # The collector would walk the cycle's frames again and again in the middle of the measurement.
    gc.collect()
    gc.freeze()
    try:
        cpu_before, begun_ns = time.process_time(), time.perf_counter_ns()
        load.begin()
        load.carry_on_until(begun_ns + int(seconds * 1e9))
        elapsed = (time.perf_counter_ns() - begun_ns) / 1e9
        cpu_seconds = time.process_time() - cpu_before
        measured = copy(load.tally)
        load.tally.latency = LatencyHistogram()
        load.finish()
    finally:
        load.close()
        gc.unfreeze()
    errors = load.tally.error_codes
    return LoadResult(
        connections=connections,
        in_flight=in_flight,
        requests=measured.answers,
        seconds=elapsed,
        rate=measured.answers / elapsed,
        **_latencies(measured.latency),
        errors=errors.total(),
        error_codes={str(code): count for code, count in sorted(errors.items())},
        first_error=load.tally.first_error,
        bytes_in=measured.bytes_in,
        bytes_out=measured.bytes_out,
        cpu_seconds=cpu_seconds,
    )


def _latencies(latency: LatencyHistogram) -> dict[str, float]:
    shares = {"p50_ms": 0.50, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}
    return {name: latency.percentile_us(share) / 1000 for name, share in shares.items()}


def run_load(
    address: tuple[str, int],
    frames: Sequence[bytes],
    connections: int,
    in_flight: int,
    seconds: float,
    silence_seconds: float = 10.0,
) -> LoadResult:
    """Run the load in a process of its own and wait for its result."""
    host, port = address
    command = [sys.executable, "-m", "bench.loadgen", f"{host}:{port}", "--frames", "-"]
    command += ["--connections", str(connections), "--in-flight", str(in_flight)]
    command += ["--seconds", str(seconds), "--silence-seconds", str(silence_seconds)]
    finished = subprocess.run(command, cwd=_ROOT, input=b"".join(frames), capture_output=True, check=False)
    if finished.returncode != 0:
        raise LoadError(finished.stderr.decode(errors="replace").strip() or "the load generator died")
    return LoadResult(**json.loads(finished.stdout))


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
        prog="python -m bench.loadgen", description="Load a remoting server with pre-encoded frames."
    )
    parser.add_argument("address", type=_address, help="HOST:PORT of the server")
    parser.add_argument("--frames", required=True, help="file of request frames, or - for standard input")
    parser.add_argument("--connections", type=_count, default=1, help="default: %(default)s")
    parser.add_argument("--in-flight", type=_count, default=1, help="per connection; default: %(default)s")
    parser.add_argument("--seconds", type=float, default=5.0, help="default: %(default)s")
    parser.add_argument(
        "--silence-seconds",
        type=float,
        default=10.0,
        help="fail after so long without an answer; default: %(default)s",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    wanted = _arguments(argv)
    try:
        stream = sys.stdin.buffer.read() if wanted.frames == "-" else Path(wanted.frames).read_bytes()
        result = load_in_this_process(
            wanted.address,
            list(split(stream)),
            wanted.connections,
            wanted.in_flight,
            wanted.seconds,
            wanted.silence_seconds,
        )
    except (BenchmarkError, OSError) as problem:
        print(f"load failed: {problem}", file=sys.stderr)
        return 1
    print(json.dumps(asdict(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
