"""Transactions and pops beside Apache's broker, and a million timers in ours.

Rules kept here:

- Measurements take turns between the two brokers in one run; the rules of that are in `contest`.
- Both get the same dialogues from the same generator; what counts is what a broker has finished.
- Timers are measured in ours alone: their targets are absolute.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.broker.contest import Contestant, Load, busy_note, cluster, figures
from bench.broker.load import create_topic, fill
from bench.errors import BenchmarkError
from bench.load.dialogue import run_dialogues
from bench.load.results import LoadResult
from bench.message_types import timers
from bench.report.figures import Figure, Section, Target
from tests.compat.apache import JavaError, ServerError

AS_FAST = Target(ratio_at_least=1.0)
IN_TRANSACTIONS, POPPED = "bench-transactions", "bench-popped"
POPPED_BATCHES = 256
LOADS: Mapping[Load, tuple[str, str]] = {
    Load("transactions", 1, 32, AS_FAST): ("transactions", IN_TRANSACTIONS),
    Load("transactions", 4, 8, AS_FAST): ("transactions", IN_TRANSACTIONS),
    Load("popped by 32, acked one by one", 4, 1, AS_FAST): ("pops", POPPED),
    Load("popped by 32, acked at once", 4, 1, AS_FAST): ("pops-acked-at-once", POPPED),
}
PENDING_MB, LATE_MS, SHARE = Target(below=100), Target(below=1_000), Target(at_least=80)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure."""

    rounds: int
    seconds: float
    jvm_warm_up_seconds: float
    warm_up_seconds: float
    timers: int
    timer_seconds: float


FULL = Effort(
    rounds=5,
    seconds=2.0,
    jvm_warm_up_seconds=32.0,
    warm_up_seconds=4.0,
    timers=1_000_000,
    timer_seconds=12.0,
)
QUICK = Effort(
    rounds=3,
    seconds=1.0,
    jvm_warm_up_seconds=12.0,
    warm_up_seconds=2.0,
    timers=100_000,
    timer_seconds=2.0,
)


def run(effort: Effort, say: Say) -> Section:
    """Measure both brokers and compare them, then the timers of ours."""
    try:
        return _run(effort, say)
    except (ServerError, JavaError) as problem:
        raise BenchmarkError(str(problem)) from problem


def _run(effort: Effort, say: Say) -> Section:
    about = (
        "128-byte bodies; connections × dialogues on each: a half and its commit, or a pop of 32 and its acks"
    )
    section = Section("Kinds of messages", notes=[about, *busy_note()])
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as folder:
        root = Path(folder)
        with cluster(root / "apache", comet=False) as apache, cluster(root / "comet", comet=True) as comet:
            section.figures += _compared([apache, comet], effort, say)
            section.notes += [apache.cpu_note(), comet.cpu_note()]
        section.figures += _timers(root / "timers", effort, section.notes, say)
    if effort is QUICK:
        section.notes.append("a quick run: the JVM is not warm yet, so these ratios flatter us")
    return section


def _compared(contestants: Sequence[Contestant], effort: Effort, say: Say) -> Iterator[Figure]:
    for contestant in contestants:
        for topic in (IN_TRANSACTIONS, POPPED):
            create_topic(contestant.address, contestant.namesrv, topic)
        fill(contestant.address, POPPED, POPPED_BATCHES)
        seconds = effort.jvm_warm_up_seconds if contestant.is_a_jvm else effort.warm_up_seconds
        say(f"warming up {contestant.name} for {seconds:g} s")
        for load in LOADS:
            _run_load(contestant, load, seconds / len(LOADS))
    for number in range(effort.rounds):
        for load in LOADS:
            for contestant in contestants if number % 2 == 0 else reversed(contestants):
                result = contestant.keep(load, partial(_run_load, contestant, load, effort.seconds))
                turn = f"round {number + 1} of {effort.rounds}, {load}, {contestant.name}"
                say(f"{turn}: {result.rate:,.0f}/s, p99 {result.latency_ms.p99:.2f} ms")
    yield from figures(*contestants)


def _run_load(contestant: Contestant, load: Load, seconds: float) -> LoadResult:
    what, topic = LOADS[load]
    return run_dialogues(contestant.address, what, topic, load.shape, seconds, contestant.broker.pid)


def _timers(home: Path, effort: Effort, notes: list[str], say: Say) -> Iterator[Figure]:
    run = timers.measure(
        home, effort.timers, effort.rounds, effort.timer_seconds, effort.warm_up_seconds, say
    )
    notes.append(
        f"{run.delivered:,} of {run.pending:,} timers came due beside sends, "
        f"{timers.DUE_A_SECOND:,} a second; none was early, none was lost"
    )
    yield Figure(f"{effort.timers:,} timers pending", "MB", [run.private_mb], target=PENDING_MB)
    yield Figure("99th percentile, timers beside sends", "ms late", run.late_ms, target=LATE_MS)
    yield Figure("sends beside timers", "% of usual", run.shares, target=SHARE)
