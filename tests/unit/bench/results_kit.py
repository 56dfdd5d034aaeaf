"""Results for the tests of the page and the plot."""

from __future__ import annotations

from bench.report.figures import Curve, Figure, Section, Target
from bench.report.results import Machine, Result

MACHINE = Machine(processor="Some CPU", cores=2, memory_gb=24, system="Linux 6.1", load_average=0.25)
BROKER = Section(
    "Broker",
    [
        Figure("sends, 1 × 1", "a second", [7000.0, 8000.0, 7500.0], [5000.0], Target(ratio_at_least=1.2)),
        Figure("send to listener, median", "ms", [0.6], [0.5], Target(ratio_at_most=0.5)),
        Figure("99th percentile, sends, 1 × 1", "ms", [1.0], [2.0]),
        Figure("CPU a million messages, sends, 1 × 1", "s", [10.0], [30.0]),
        Figure("standalone, start to ready", "s", [0.6], target=Target(below=1)),
    ],
    ["128-byte bodies"],
)
GROWTH = Section(
    "Growth",
    [Figure("sends, 100 topics over 1", "× CPU", [1.1], target=Target(below=1.25))],
    curves=[
        Curve("sends", "topics", "CPU µs", {1: 9.0, 100: 9.9}, {1: 30.0, 100: 27.0}),
        Curve("sends", "topics", "p99 ms", {1: 1.0, 100: 2.0}),
        Curve("start to ready", "topics", "s", {1: 0.5}),
    ],
)


def result(name: str, section: Section, *, quick: bool = False, at: str = "2026-01-02 03:04 UTC") -> Result:
    return Result(name, at, quick, MACHINE, {"CometMQ": "0.1.0"}, section, seconds=90.0)
