"""`--against CHECKOUT`: this tree beside an older one, in one run and in turns.

Rules kept here:

- The two brokers run at the same time and take turns, as a broker of ours and Apache's do in `contest`.
- Every other benchmark runs as a quick one in a process of its own, in both trees in turns; figures are
  compared by their names.
- "theirs" is the older tree. A rate should stay above 0.97 times the older one, and a cost below 1.03 times.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from bench import results
from bench.broker import FLUSHED, PULLED, PULLED_BATCHES, PULLS, SENDS, SENT
from bench.broker_load import create_topic, fill, pull_frames, send_frames
from bench.contest import SETTINGS, Contestant, Load, busy_note, figures, take_turns
from bench.errors import BenchmarkError
from bench.report import Figure, Section, Target
from tests.compat.apache import CometBroker, CometNamesrv, ServerError

HERE = Path(__file__).resolve().parent.parent
AS_FAST, AS_CHEAP = Target(ratio_at_least=0.97), Target(ratio_at_most=1.03)
COSTS = ("ms", "s", "MB", "µs")

Say = Callable[[str], None]


def run(name: str, checkout: Path, quick: bool, say: Say) -> Section:
    """Compare one benchmark of this tree with the same of another checkout."""
    checkout = checkout.resolve()
    if not (checkout / "src" / "cometmq").is_dir():
        raise BenchmarkError(f"{checkout.name} is no checkout of CometMQ: it has no src/cometmq")
    rounds = 3 if quick else 7
    if name == "broker":
        try:
            return _brokers(checkout, rounds, 1.0 if quick else 2.0, say)
        except ServerError as problem:
            raise BenchmarkError(str(problem)) from problem
    return _processes(name, checkout, rounds, say)


def _brokers(checkout: Path, rounds: int, seconds: float, say: Say) -> Section:
    section = Section("Broker, before and after", notes=list(busy_note()), peer="Before")
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as folder:
        for what, settings in (("plain", {}), ("flushed", {"flushDiskType": "SYNC_FLUSH"})):
            with _both(Path(folder) / what, checkout, settings) as contestants:
                loads = _loads(contestants, what)
                for contestant in contestants:
                    for load, frames in loads.items():
                        contestant.run(load, frames, seconds)
                take_turns(contestants, loads, rounds, seconds, say)
                section.figures += map(_judged, figures(*contestants))
    return section


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
