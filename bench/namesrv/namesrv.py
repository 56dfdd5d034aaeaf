"""The name server beside Apache's: route look-ups, start-up time, and memory.

Rules kept here:

- Both servers run at the same time with the same cluster in them: 8 brokers, each with the same 1,000
  topics. Measurements take turns between them, and the one that begins changes from round to round.
- A JVM is measured after half a minute of load, because before that it is still compiling itself.
- A look-up answered with an error is not a look-up: any such answer ends the benchmark.
- Ready means that a request is answered, whatever the log says.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from bench.broker.contest import QUICK_NOTE, Effort, Say, cpu_note
from bench.broker.starts import resident_mb, start_once
from bench.errors import BenchmarkError
from bench.load.generator import run_load
from bench.load.results import LoadResult, Shape
from bench.namesrv.registered_cluster import RegisteredCluster, route_requests, topic_names
from bench.report.figures import Figure, Section, Target
from tests.compat.apache import ApacheNamesrv, CometNamesrv, Server

BROKERS = 8
TOPICS = 1_000
RATIO = Target(ratio_at_least=1.5)
READY_SECONDS = Target(below=0.5)
MEMORY_MB = Target(below=60)


@dataclass(frozen=True, slots=True)
class LookUps:
    """How look-ups are asked: over how many connections, with how many requests in flight on each."""

    connections: int
    in_flight: int
    binary: bool = False

    def __str__(self) -> str:
        headers = ", binary headers" if self.binary else ""
        return f"{self.connections} × {self.in_flight}{headers}"


SHAPES = (LookUps(1, 1), LookUps(1, 8), LookUps(8, 64), LookUps(8, 64, binary=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvEffort(Effort):
    """How long to measure."""

    starts: int


FULL = NamesrvEffort(rounds=7, seconds=1.5, starts=3, jvm_warm_up_seconds=32.0, warm_up_seconds=2.0)
QUICK = NamesrvEffort(rounds=2, seconds=0.5, starts=1, jvm_warm_up_seconds=4.0, warm_up_seconds=1.0)


def run(effort: NamesrvEffort, say: Say) -> Section:
    """Measure both name servers and compare them."""
    section = Section(
        "Name server",
        notes=[f"{BROKERS} brokers with {TOPICS:,} topics each; connections × requests in flight on each"],
    )
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as folder, ExitStack() as stack:
        homes = (Path(folder) / f"home-{number}" for number in count())
        section.figures += _starts(homes, effort, say)
        contestants = [
            _Contestant(stack.enter_context(ApacheNamesrv(next(homes))), effort.jvm_warm_up_seconds, stack),
            _Contestant(stack.enter_context(CometNamesrv(next(homes))), effort.warm_up_seconds, stack),
        ]
        for contestant in contestants:
            say(f"warming up {contestant.name} for {contestant.warm_up_seconds:g} s")
            contestant.warm_up()
        _take_turns(contestants, effort, say)
        apache, comet = contestants
        section.figures += _look_ups(comet, apache)
    section.notes += [contestant.cpu_note() for contestant in contestants]
    if effort is QUICK:
        section.notes.append(QUICK_NOTE)
    return section


class _Contestant:
    """A running name server with the cluster registered in it, and what was measured of it."""

    def __init__(self, server: Server, warm_up_seconds: float, stack: ExitStack) -> None:
        self.name = type(server).__name__
        self.warm_up_seconds = warm_up_seconds
        self.results: dict[LookUps, list[LoadResult]] = {shape: [] for shape in SHAPES}
        self._server = server
        self._address = ("127.0.0.1", server.port)
        topics = topic_names(TOPICS)
        self._requests = {binary: route_requests(topics, binary=binary) for binary in (False, True)}
        self._cluster = stack.enter_context(RegisteredCluster(self._address, BROKERS, topics))

    def warm_up(self) -> None:
        for shape in SHAPES:
            self._load(shape, self.warm_up_seconds / len(SHAPES))

    def measure(self, shape: LookUps, seconds: float) -> LoadResult:
        self._cluster.heartbeat()
        result = self._load(shape, seconds)
        self.results[shape].append(result)
        return result

    def resident_mb(self) -> float:
        return resident_mb(self._server.pid)

    def cpu_note(self) -> str:
        return cpu_note(self.name, self.results)

    def _load(self, shape: LookUps, seconds: float) -> LoadResult:
        frames = self._requests[shape.binary]
        result = run_load(
            self._address,
            frames,
            Shape(shape.connections, shape.in_flight),
            seconds,
            watched=self._server.pid,
        )
        if result.errors:
            raise BenchmarkError(
                f"{self.name} answered {result.errors} look-ups with an error: {result.first_error}"
            )
        return result


def _take_turns(contestants: Sequence[_Contestant], effort: Effort, say: Say) -> None:
    for number in range(effort.rounds):
        for shape in SHAPES:
            for contestant in contestants if number % 2 == 0 else reversed(contestants):
                result = contestant.measure(shape, effort.seconds)
                what = f"round {number + 1} of {effort.rounds}, {shape}, {contestant.name}"
                say(f"{what}: {result.rate:,.0f}/s, p99 {result.latency_ms.p99:.2f} ms")


def _look_ups(comet: _Contestant, apache: _Contestant) -> Iterator[Figure]:
    """Rates, latencies, memory and costs."""

    def compared(name: str, unit: str, of: Callable[[LoadResult], float], target: Target) -> Iterator[Figure]:
        for shape in SHAPES:
            ours, theirs = ([of(one) for one in side.results[shape]] for side in (comet, apache))
            yield Figure(f"{name}, {shape}", unit, ours, theirs, target)

    yield from compared("route look-ups", "a second", lambda one: one.rate, RATIO)
    yield from compared("99th percentile", "ms", lambda one: one.latency_ms.p99, Target())
    yield Figure("resident, after load", "MB", [comet.resident_mb()], [apache.resident_mb()])
    yield from compared("CPU a million look-ups", "s", lambda one: one.server_cpu_us, Target())


def _starts(homes: Iterator[Path], effort: NamesrvEffort, say: Say) -> Iterator[Figure]:
    kinds: Sequence[type[CometNamesrv | ApacheNamesrv]] = (CometNamesrv, ApacheNamesrv)
    seconds: dict[str, list[float]] = {kind.__name__: [] for kind in kinds}
    megabytes: dict[str, list[float]] = {kind.__name__: [] for kind in kinds}
    for _ in range(effort.starts):
        for kind in kinds:
            ready_seconds, idle_mb = _start_once(kind(next(homes)))
            say(f"{kind.__name__} ready in {ready_seconds:.2f} s, {idle_mb:.0f} MB")
            seconds[kind.__name__].append(ready_seconds)
            megabytes[kind.__name__].append(idle_mb)
    ours, theirs = seconds.values()
    yield Figure("start to ready", "s", ours, theirs, READY_SECONDS)
    ours, theirs = megabytes.values()
    yield Figure("resident, idle", "MB", ours, theirs, MEMORY_MB)


def _start_once(server: Server) -> tuple[float, float]:
    question = route_requests(["no-such-topic"])[0]
    return start_once(server, [(("127.0.0.1", server.port), question)])
