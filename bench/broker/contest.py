"""Two clusters side by side, each a name server and a broker, and loads that take turns between them.

Rules kept here:

- Both run at the same time with the same settings; the one that begins changes from round to round.
- A JVM is measured after half a minute of load, when it has compiled its hot code.
- Any answer with an error ends the benchmark.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench.errors import BenchmarkError
from bench.load.generator import run_load
from bench.load.results import LoadResult, Shape
from bench.report.figures import Figure, Target
from tests.compat.apache import ApacheBroker, ApacheNamesrv, Broker, CometBroker, CometNamesrv, Server

Say = Callable[[str], None]
Measure = Callable[[LoadResult], float]
Requests = Sequence[bytes] | tuple[str, str]
"""Frames, or the name of a dialogue and its topic."""

# As brokers run outside of tests. A request that waits is measured as such, not refused.
SETTINGS = {
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": "6000000",
    "waitTimeMillsInSendQueue": "60000",
    "waitTimeMillsInPullQueue": "60000",
}
HEAP = "1g"


def busy_note() -> list[str]:
    """A warning when others use the machine: who runs in one thread then gets the smaller share of it."""
    load = os.getloadavg()[0]
    return (
        [f"the machine was busy before the run, load average {load:.1f}: do not trust it"] if load > 1 else []
    )


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked, over how many connections, with how many requests in flight on each."""

    what: str
    connections: int
    in_flight: int
    target: Target = field(default_factory=Target)
    messages: int = 1
    """How many each request carries, or asks for."""
    in_turn: bool = False
    idle: int = 0

    @property
    def shape(self) -> Shape:
        return Shape(self.connections, self.in_flight, self.in_turn, self.idle)

    def __str__(self) -> str:
        return f"{self.what}, {self.connections} × {self.in_flight}"


class Contestant:
    """A running cluster, and what was measured of it."""

    def __init__(self, namesrv: Server, broker: Broker) -> None:
        self.name = type(broker).__name__
        self.namesrv = ("127.0.0.1", namesrv.port)
        self.address = ("127.0.0.1", broker.port)
        self.namesrv_address = namesrv.address
        self.broker = broker
        self.results: dict[Load, list[LoadResult]] = {}

    @property
    def is_a_jvm(self) -> bool:
        return isinstance(self.broker, ApacheBroker)

    def run(self, load: Load, what: Requests, seconds: float) -> LoadResult:
        result = run_load(self.address, what, load.shape, seconds, watched=self.broker.pid)
        if result.errors:
            raise BenchmarkError(f"{self.name}, {load}: {result.errors} errors: {result.first_error}")
        return result

    def cpu_note(self) -> str:
        return cpu_note(self.name, self.results)


def cpu_note(name: str, results: Mapping[Any, Sequence[LoadResult]]) -> str:
    """Who was busy: a figure is the server's only where the generator was not."""
    shares = (
        f"{load}: {median(r.server_cpu_share for r in found):.2f}"
        f" and {median(r.cpu_share for r in found):.2f}"
        for load, found in results.items()
    )
    return f"cores used by {name} and by the load generator: {'; '.join(shares)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long to measure."""

    rounds: int
    seconds: float
    jvm_warm_up_seconds: float
    warm_up_seconds: float

    def warm_up_of(self, contestant: Contestant) -> float:
        return self.jvm_warm_up_seconds if contestant.is_a_jvm else self.warm_up_seconds


QUICK_NOTE = "a quick run: the JVM is not warm yet, so these ratios flatter us"


older_tree: Path | None = None
"""With `--against`, the checkout whose brokers take the part of Apache's."""


@contextmanager
def cluster(home: Path, *, comet: bool, settings: Mapping[str, str] = {}) -> Iterator[Contestant]:
    """One cluster, ours or Apache's, in its own folder."""
    merged = {**SETTINGS, **settings}
    if comet or older_tree is not None:
        source = {} if comet or older_tree is None else {"PYTHONPATH": str(older_tree / "src")}
        namesrv: Server = CometNamesrv(home / "namesrv", env=source)
    else:
        namesrv = ApacheNamesrv(home / "namesrv")
    with namesrv:
        if comet or older_tree is not None:
            broker: Broker = CometBroker(home / "broker", namesrv.address, settings=merged, env=source)
        else:
            broker = ApacheBroker(home / "broker", namesrv.address, settings=merged, heap=HEAP)
        with broker:
            broker.wait_registered(namesrv.address)
            contestant = Contestant(namesrv, broker)
            if older_tree is not None:
                contestant.name = "After" if comet else "Before"
            yield contestant


@contextmanager
def both(home: Path, settings: Mapping[str, str] = {}) -> Iterator[list[Contestant]]:
    """Apache's cluster and ours, running at the same time."""
    with (
        cluster(home / "apache", comet=False, settings=settings) as apache,
        cluster(home / "comet", comet=True, settings=settings) as comet,
    ):
        yield [apache, comet]


def contest(
    contestants: Sequence[Contestant], loads: Mapping[Load, Requests], effort: Effort, say: Say
) -> Iterator[Figure]:
    """Warm both up, let them take turns, and compare them."""
    for contestant in contestants:
        seconds = effort.warm_up_of(contestant)
        say(f"warming up {contestant.name} for {seconds:g} s")
        for load, what in loads.items():
            contestant.run(load, what, seconds / len(loads))
    for number in range(effort.rounds):
        for load, what in loads.items():
            for contestant in contestants if number % 2 == 0 else reversed(contestants):
                result = contestant.run(load, what, effort.seconds)
                contestant.results.setdefault(load, []).append(result)
                turn = f"round {number + 1} of {effort.rounds}, {load}, {contestant.name}"
                say(f"{turn}: {result.rate:,.0f}/s, p99 {result.latency_ms.p99:.2f} ms")
    yield from _figures(*contestants)


def _figures(apache: Contestant, comet: Contestant) -> Iterator[Figure]:
    """Rates with their targets, then the percentiles, what a message cost, and the memory that it took."""

    def compared(name: str, unit: str, loads: Sequence[Load], of: Measure, target: Target) -> Figure:
        theirs, ours = ([of(one) for load in loads for one in side.results[load]] for side in (apache, comet))
        return Figure(name, unit, ours, theirs, target)

    every = list(comet.results)
    for load in every:
        yield compared(str(load), "a second", [load], lambda one: one.rate, load.target)
    for load in every:
        yield compared(f"99th percentile, {load}", "ms", [load], lambda one: one.latency_ms.p99, Target())
    for load in every:
        cost = partial(_cost, load.messages)
        yield compared(f"CPU a million messages, {load}", "s", [load], cost, Target())
    for what in dict.fromkeys(load.what for load in every):
        loads = [load for load in every if load.what == what]
        yield compared(f"resident, after {what}", "MB", loads, lambda one: one.server_resident_mb, Target())
        yield compared(
            f"not of files, after {what}", "MB", loads, lambda one: one.server_private_mb, Target()
        )


def _cost(messages: int, result: LoadResult) -> float:
    """Microseconds a message, which are seconds a million messages."""
    return result.server_cpu_us / messages
