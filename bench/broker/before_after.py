"""`--against CHECKOUT`: this tree beside an older one, in one run and in turns.

Rules kept here:

- The two brokers run at the same time on one core and take turns of 50 ms: the speed of a shared machine can
  change by half from one second to the next, and both have to see the same of it. Neighbouring turns are
  compared. A tree against itself then differs by less than 1 %.
- In the other contests of brokers, those of the older tree take the part of Apache's, in many short turns.
- Every other benchmark runs as a quick one in a process of its own, in both trees in turns; figures are
  compared by their names.
- "theirs" is the older tree. A rate should stay above 0.97 times the older one, and a cost below 1.03 times.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from bench.broker import contest
from bench.broker.broker import FLUSHED, PULLED, PULLED_BATCHES, PULLS, SENDS, SENT
from bench.broker.contest import SETTINGS, Contestant, Load, both, busy_note
from bench.broker.load import create_topic, fill, pull_frames, send_frames
from bench.errors import BenchmarkError
from bench.growth import growth
from bench.load.generator import OpenLoad
from bench.load.usage import cpu_ns_of
from bench.message_types import message_types
from bench.report import results
from bench.report.figures import Figure, Section, Target
from tests.compat.apache import CometBroker, CometNamesrv

HERE = Path(__file__).resolve().parents[2]
AS_FAST, AS_CHEAP = Target(ratio_at_least=0.97), Target(ratio_at_most=1.03)
COSTS = ("ms", "s", "MB", "µs")
_SLICE_S = 0.05
_CORES = sorted(os.sched_getaffinity(0))
_WARM_UP = 10
"""Turns that are no part of a figure."""

Say = Callable[[str], None]


def run(name: str, checkout: Path, quick: bool, say: Say) -> Section:
    """Compare one benchmark of this tree with the same of another checkout."""
    checkout = checkout.resolve()
    if not (checkout / "src" / "cometmq").is_dir():
        raise BenchmarkError(f"{checkout.name} is no checkout of CometMQ: it has no src/cometmq")
    rounds = 3 if quick else 7
    if name == "broker":
        return _brokers(checkout, 1.5 if quick else 10.0, say)
    if name in ("kinds", "growth"):
        return _contest(name, checkout, quick, say)
    return _processes(name, checkout, rounds, say)


def _contest(name: str, checkout: Path, quick: bool, say: Say) -> Section:
    """Have the brokers of both trees take turns in a contest that is otherwise with Apache's."""
    contest.older_tree = checkout
    try:
        section = _kinds(quick, say) if name == "kinds" else _growth(quick, say)
    finally:
        contest.older_tree = None
    section.peer = "Before"
    return section


def _kinds(quick: bool, say: Say) -> Section:
    section = Section("Kinds of messages, before and after", notes=list(busy_note()))
    effort = replace(
        message_types.FULL,
        rounds=8 if quick else 24,
        seconds=0.4,
        jvm_warm_up_seconds=2.0,
        warm_up_seconds=2.0,
    )
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as folder, both(Path(folder)) as contestants:
        for figure in message_types.compared(contestants, effort, say):
            section.figures.append(_judged(replace(figure, in_pairs=True)))
    return section


def _growth(quick: bool, say: Say) -> Section:
    """What a request costs at each size, in the one tree over the other."""
    section = Section("Growth, before and after", notes=list(busy_note()))
    effort = replace(
        growth.FULL,
        topics=growth.FULL.topics[::2] if quick else growth.FULL.topics,
        connections=growth.FULL.connections[::2] if quick else growth.FULL.connections,
        backlog=growth.FULL.backlog[::2] if quick else growth.FULL.backlog,
        rounds=8 if quick else 24,
        seconds=0.25,
        jvm_warm_up_seconds=1.0,
        warm_up_seconds=1.0,
    )
    for grows in growth.kinds(effort):
        with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as folder:
            grown = growth.grow(grows, Path(folder), effort, say)
        for what, sizes in grown.ours.items():
            for size, ours in sizes.items():
                after, before = (
                    [each.server_cpu_us for each in side] for side in (ours, grown.theirs[what][size])
                )
                name = f"{what}, {size:,} {grows.over}"
                section.figures.append(_judged(Figure(name, "µs", after, before, in_pairs=True)))
    return section


def _brokers(checkout: Path, seconds: float, say: Say) -> Section:
    section = Section("Broker, before and after", notes=list(busy_note()), peer="Before")
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as folder:
        for what, settings in (("plain", {}), ("flushed", {"flushDiskType": "SYNC_FLUSH"})):
            with _both(Path(folder) / what, checkout, settings) as contestants:
                _use_core(os.getpid(), 0)
                for load, frames in _loads(contestants, what).items():
                    say(f"{load}, {2 * seconds:.0f} s")
                    section.figures += map(_judged, _alternate(contestants, load, frames, seconds))
    return section


def _alternate(
    contestants: Sequence[Contestant], load: Load, frames: Sequence[bytes], seconds: float
) -> Iterator[Figure]:
    """Rate and cost of one load on both, which take turns of 50 ms."""
    rates: list[list[float]] = [[], []]
    costs: list[list[float]] = [[], []]
    with ExitStack() as stack:
        sides = []
        for contestant in contestants:
            _use_core(contestant.broker.pid, 1)
            running = OpenLoad(contestant.address, frames, load.shape, silence_seconds=10.0)
            stack.callback(running.close)
            sides.append((running, contestant.broker.pid))
        for number in range(_WARM_UP + int(seconds / _SLICE_S)):
            for side in (0, 1) if number % 2 else (1, 0):
                answers, taken_s, cpu_ns = _slice(*sides[side])
                if number >= _WARM_UP:
                    rates[side].append(answers / taken_s)
                    costs[side].append(cpu_ns / 1000 / answers)
        for running, _ in sides:
            if running.tally.first_error:
                raise BenchmarkError(f"{load}: {running.tally.first_error}")
    yield Figure(str(load), "a second", rates[1], rates[0], in_pairs=True)
    yield Figure(f"CPU a request, {load}", "µs", costs[1], costs[0], in_pairs=True)


def _use_core(pid: int, core: int) -> None:
    """Keep a process on one core, so that the two sides do not move about in different ways."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {_CORES[core % len(_CORES)]})


def _slice(load: OpenLoad, pid: int) -> tuple[int, float, int]:
    """Answers, seconds and the broker's processor time of one turn, to the last answer."""
    cpu_ns, answers, begun_ns = cpu_ns_of(pid), load.tally.answers, time.perf_counter_ns()
    load.begin()
    load.carry_on_until(begun_ns + int(_SLICE_S * 1e9))
    load.finish()
    taken_s = (time.perf_counter_ns() - begun_ns) / 1e9
    return load.tally.answers - answers, taken_s, cpu_ns_of(pid) - cpu_ns


def _loads(contestants: Sequence[Contestant], what: str) -> dict[Load, Sequence[bytes]]:
    for contestant in contestants:
        for topic in (SENT, PULLED):
            create_topic(contestant.address, contestant.namesrv, topic)
        fill(contestant.address, PULLED, PULLED_BATCHES)
    if what == "flushed":
        return dict.fromkeys(FLUSHED, send_frames(SENT))
    sends: dict[Load, Sequence[bytes]] = dict.fromkeys(SENDS, send_frames(SENT))
    return sends | dict.fromkeys(PULLS, pull_frames(PULLED, PULLED_BATCHES))


@contextmanager
def _both(home: Path, checkout: Path, settings: Mapping[str, str]) -> Iterator[list[Contestant]]:
    """A cluster of the older tree and one of this, running at the same time."""
    with ExitStack() as stack:
        contestants = []
        for name, tree in (("Before", checkout), ("After", HERE)):
            source = {"PYTHONPATH": str(tree / "src")}
            namesrv = stack.enter_context(CometNamesrv(home / name / "namesrv", env=source))
            merged = {**SETTINGS, **settings}
            broker = CometBroker(home / name / "broker", namesrv.address, settings=merged, env=source)
            stack.enter_context(broker).wait_registered(namesrv.address)
            contestant = Contestant(namesrv, broker)
            contestant.name = name
            contestants.append(contestant)
        yield contestants


def _processes(name: str, checkout: Path, rounds: int, say: Say) -> Section:
    """Run a benchmark in both trees in turns, each time in a process of its own."""
    before: dict[tuple[str, str], list[float]] = {}
    after: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds):
        sides = [("before", checkout, before), ("after", HERE, after)]
        for side, tree, measured in sides if number % 2 == 0 else reversed(sides):
            say(f"round {number + 1} of {rounds}, {name}, {side}")
            for figure in _measured(name, tree):
                measured.setdefault((figure.name, figure.unit), []).extend(figure.ours)
    section = Section(f"{name}, before and after", notes=list(busy_note()), peer="Before")
    section.figures = [
        _judged(Figure(*of, ours=values, theirs=before[of])) for of, values in after.items() if of in before
    ]
    return section


def _measured(name: str, tree: Path) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as folder:
        done = subprocess.run(
            [sys.executable, "-m", "bench", "--only", name, "--quick", "--into", folder],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree / "src")},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BenchmarkError(f"{name} failed in {tree.name}: {done.stderr[-2_000:]}")
        (result,) = results.newest([name], Path(folder) / "results")
        return result.section.figures


def _judged(figure: Figure) -> Figure:
    """The figure with the target that its unit asks for; percentiles and memory are only shown."""
    if "percentile" in figure.name or figure.unit == "MB":
        return replace(figure, target=Target())
    return replace(figure, target=AS_CHEAP if figure.unit in COSTS else AS_FAST)
