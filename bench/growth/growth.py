"""Cost of a message over the number of topics, connections and stored messages.

Rules kept here:

- The cost of a request is the processor time of the broker; it does not depend on who else is waiting.
- Machines drift within minutes. So at every size a new broker of the smallest size takes turns with the one
  that has grown, and what counts is the one over the other.
- Apache's broker grows beside ours, for comparison; its processes are warm before the first size counts.
- A broker with a backlog is started again at each size; Apache's only at the first and the last, because it
  would be cold again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.broker.contest import Contestant, Effort, Say, both, busy_note, cluster
from bench.broker.load import GET_MAX_OFFSET
from bench.broker.starts import start, stop
from bench.growth.tasks import (
    IN_FLIGHT,
    IN_TURN,
    SAME_IN_A_ROW,
    SMALLEST_BACKLOG,
    Backlog,
    Connections,
    Kind,
    Task,
    Topics,
)
from bench.load.frames import json_request
from bench.load.results import LoadResult
from bench.report.figures import Curve, Figure, Section, Target

FLAT = Target(below=1.25)
_ANY_QUEUE = json_request(GET_MAX_OFFSET, {"topic": "TBW102", "queueId": "0"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthEffort(Effort):
    """Which sizes, and how long to measure each."""

    topics: Sequence[int]
    connections: Sequence[int]
    backlog: Sequence[int]


FULL = GrowthEffort(
    topics=(1, 100, 1_000, 10_000),
    connections=(1, 100, 1_000, 5_000),
    backlog=(SMALLEST_BACKLOG, 100_000, 1_000_000, 10_000_000),
    rounds=3,
    seconds=1.0,
    jvm_warm_up_seconds=32.0,
    warm_up_seconds=1.5,
)
QUICK = GrowthEffort(
    topics=(1, 1_000),
    connections=(1, 1_000),
    backlog=(),
    rounds=1,
    seconds=0.3,
    jvm_warm_up_seconds=2.0,
    warm_up_seconds=0.3,
)


@dataclass(slots=True)
class Grown:
    """All that was measured of one kind of growth; results are by what was asked and the size."""

    ours: dict[str, dict[int, list[LoadResult]]] = field(default_factory=dict)
    theirs: dict[str, dict[int, list[LoadResult]]] = field(default_factory=dict)
    small: dict[str, dict[int, list[LoadResult]]] = field(default_factory=dict)
    """Of the small broker, by the size of the one that it took turns with."""
    our_starts: dict[int, float] = field(default_factory=dict)
    their_starts: dict[int, float] = field(default_factory=dict)


def run(effort: GrowthEffort, say: Say) -> Section:
    """Let both brokers grow, in one way after the other."""
    about = "CPU µs: processor time of the broker for one request, be it a send or a pull of 32"
    section = Section("Growth", notes=[about, *busy_note()])
    for kind in kinds(effort):
        with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as folder:
            grown = grow(kind, Path(folder), effort, say)
        section.figures += figures(kind.over, grown)
        section.curves += curves(kind.over, grown)
    section.notes += [
        f"topics: sends go to one topic {SAME_IN_A_ROW} times in a row, as from a producer that has one, or "
        "to another each time; those to one topic that come together are put together, so what goes to "
        "another each time is compared with the same among fewer topics",
        f"the smallest backlog, {SMALLEST_BACKLOG:,} messages, is what the pulls read at all sizes",
        f"connections: {IN_FLIGHT} requests in flight on one, of which many come together, or {IN_TURN} in "
        "all, each on the next connection, so that every one comes alone",
    ]
    if effort is QUICK:
        section.notes.append("a quick run: short rounds, no backlog, and the JVM is not warm yet")
    return section


def kinds(effort: GrowthEffort) -> Sequence[Kind]:
    """What grows, as far as there are sizes for it."""
    every: Sequence[Kind] = (Topics(effort.topics), Connections(effort.connections), Backlog(effort.backlog))
    return [kind for kind in every if kind.sizes]


def grow(kind: Kind, home: Path, effort: Effort, say: Say) -> Grown:
    """Measure at one size after the other."""
    grown = Grown()
    with both(home, kind.settings) as (apache, comet):
        for size in kind.sizes:
            for contestant in (apache, comet):
                kind.grow(contestant, size)
                say(f"{contestant.name} has {size:,} {kind.over}")
            if kind.starts:
                grown.our_starts[size] = _start_again(comet, say)
            if size == kind.sizes[0]:
                if kind.starts:
                    grown.their_starts[size] = _start_again(apache, say)
                _warm_up(apache, kind.tasks(apache, size), effort.jvm_warm_up_seconds)
            with cluster(home / f"small-{size}", comet=True, settings=kind.settings) as small:
                kind.grow(small, kind.sizes[0])
                _measure(kind, size, (apache, comet, small), grown, effort, say)
        if kind.starts:
            grown.their_starts[kind.sizes[-1]] = _start_again(apache, say)
    return grown


def _measure(
    kind: Kind,
    size: int,
    contestants: tuple[Contestant, Contestant, Contestant],
    grown: Grown,
    effort: Effort,
    say: Say,
) -> None:
    """The rounds of one size: Apache's, ours, and the small one in turns."""
    apache, comet, small = contestants
    asked = [
        (apache, _by_name(kind.tasks(apache, size)), grown.theirs, "Apache's"),
        (comet, _by_name(kind.tasks(comet, size)), grown.ours, "ours"),
        # What the smallest size is not asked, the next one is.
        (
            small,
            _by_name(kind.tasks(small, kind.sizes[1]) + kind.tasks(small, kind.sizes[0])),
            grown.small,
            "small",
        ),
    ]
    names = list(asked[0][1])
    for contestant, tasks, _, _ in asked:
        _warm_up(contestant, [tasks[name] for name in names], effort.warm_up_seconds)
    for number in range(effort.rounds):
        for name in names:
            for contestant, tasks, results, who in asked if number % 2 == 0 else reversed(asked):
                result = contestant.run(tasks[name].load, tasks[name].frames, effort.seconds)
                results.setdefault(name, {}).setdefault(size, []).append(result)
                told = f"{result.rate:,.0f}/s, {result.server_cpu_us:.2f} CPU µs"
                told += f", p99 {result.latency_ms.p99:.2f} ms"
                say(f"{size:,} {kind.over}, {name}, {who}: {told}")


def _by_name(tasks: Sequence[Task]) -> dict[str, Task]:
    return {task.load.what: task for task in tasks}


def _warm_up(contestant: Contestant, tasks: Sequence[Task], seconds: float) -> None:
    for task in tasks:
        contestant.run(task.load, task.frames, seconds / len(tasks))


def _start_again(contestant: Contestant, say: Say) -> float:
    """Stop a broker orderly and start it with what it has; how long that takes until it answers."""
    stop(contestant.broker)
    seconds = start(contestant.broker, [(contestant.address, _ANY_QUEUE)])
    contestant.broker.wait_registered(contestant.namesrv_address)
    say(f"{contestant.name} ready in {seconds:.2f} s")
    return seconds


def figures(over: str, grown: Grown) -> Iterator[Figure]:
    """What a request costs at the largest size, over what it costs at the smallest."""
    for what, by_size in grown.ours.items():
        first, last = min(by_size), max(by_size)
        small = grown.small[what][last]
        ours = [
            large.server_cpu_us / little.server_cpu_us
            for large, little in zip(by_size[last], small, strict=True)
        ]
        yield Figure(f"{what}, {last:,} {over} over {first:,}", "× CPU", ours, target=FLAT)


def curves(over: str, grown: Grown) -> Iterator[Curve]:
    """Costs, rates and percentiles of everything that was asked, then memory and starts."""
    measures: dict[str, Callable[[LoadResult], float]] = {
        "CPU µs": lambda one: one.server_cpu_us,
        "a second": lambda one: one.rate,
        "p99 ms": lambda one: one.latency_ms.p99,
    }
    for what in grown.ours:
        for unit, of in measures.items():
            yield _curve(what, over, unit, grown, what, of)
    sends = next(iter(grown.ours))
    yield _curve("memory", over, "MB resident", grown, sends, lambda one: one.server_resident_mb)
    yield _curve("memory", over, "MB not of files", grown, sends, lambda one: one.server_private_mb)
    if grown.our_starts:
        yield Curve("start to ready", over, "s", grown.our_starts, grown.their_starts)


def _curve(
    name: str, over: str, unit: str, grown: Grown, what: str, of: Callable[[LoadResult], float]
) -> Curve:
    ours, theirs = (
        {size: median(map(of, results)) for size, results in side[what].items()}
        for side in (grown.ours, grown.theirs)
    )
    return Curve(name, over, unit, ours, theirs)
