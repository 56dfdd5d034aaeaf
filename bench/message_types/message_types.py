"""Transactions and pops beside Apache's broker, and a million timers in CometMQ's.

Rules kept here:

- Both brokers take turns in one run; see `contest.py`.
- Both get the same dialogues from the same generator. Only work that the broker has finished counts.
- Timers are measured in CometMQ's broker alone: their targets are absolute.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.broker.contest import QUICK_NOTE, Contestant, Effort, Load, both, busy_note, contest
from bench.broker.load import create_topic, fill
from bench.message_types import timers
from bench.report.figures import Figure, Section, Target

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TypesEffort(Effort):
    """How long to measure, and how many timers to set."""

    timers: int
    timer_seconds: float


FULL = TypesEffort(
    rounds=5,
    seconds=2.0,
    jvm_warm_up_seconds=32.0,
    warm_up_seconds=4.0,
    timers=1_000_000,
    timer_seconds=12.0,
)
QUICK = TypesEffort(
    rounds=1,
    seconds=0.5,
    jvm_warm_up_seconds=3.0,
    warm_up_seconds=1.0,
    timers=20_000,
    timer_seconds=1.0,
)


def run(effort: TypesEffort, say: Say) -> Section:
    """Measure both brokers and compare them, then the timers of ours."""
    about = (
        "128-byte bodies; connections × dialogues on each: a half and its commit, or a pop of 32 and its acks"
    )
    section = Section("Kinds of messages", notes=[about, *busy_note()])
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as folder:
        root = Path(folder)
        with both(root) as contestants:
            section.figures += compared(contestants, effort, say)
            section.notes += [contestant.cpu_note() for contestant in contestants]
        section.figures += _timers(root / "timers", effort, section.notes, say)
    if effort is QUICK:
        section.notes.append(QUICK_NOTE)
    return section


def compared(contestants: Sequence[Contestant], effort: TypesEffort, say: Say) -> Iterator[Figure]:
    """Transactions and pops of both, in turns."""
    for contestant in contestants:
        for topic in (IN_TRANSACTIONS, POPPED):
            create_topic(contestant.address, contestant.namesrv, topic)
        fill(contestant.address, POPPED, POPPED_BATCHES)
    return contest(contestants, LOADS, effort, say)


def _timers(home: Path, effort: TypesEffort, notes: list[str], say: Say) -> Iterator[Figure]:
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
