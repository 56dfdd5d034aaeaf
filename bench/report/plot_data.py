"""Data of the plot: bars of ratios against the peer, and panels of curves.

Rules kept here:

- A bar shows how many times better than the peer CometMQ is, for rates and for times: 2 is twice the rate, or
  half the time. Targets are turned the same way.
- Percentiles without a target are left out: with a fixed number in flight they follow from the rates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.report.figures import Curve, Figure
from bench.report.results import Result

LESS_IS_BETTER = frozenset({"ms", "s", "MB", "ms late", "µs"})
MORE_IS_BETTER = frozenset({"a second", "rows a second", "MB/s"})


@dataclass(frozen=True, slots=True)
class Bar:
    """One figure beside a peer's."""

    label: str
    better: float
    """Times."""
    target: float | None
    """What it should be at least, where the target is a ratio."""
    is_met: bool | None


@dataclass(frozen=True, slots=True)
class BarGroup:
    """The bars of a section."""

    title: str
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True)
class Panel:
    """One curve of ours and of a peer's."""

    title: str
    over: str
    unit: str
    ours: Sequence[tuple[int, float]]
    theirs: Sequence[tuple[int, float]]
    peer: str


def bar_groups(results: Sequence[Result]) -> Iterator[BarGroup]:
    """The sections that have something to compare."""
    for result in results:
        bars = [bar for figure in result.section.figures if (bar := _bar(figure)) is not None]
        if bars:
            yield BarGroup(f"{result.section.title}, against {result.section.peer}", bars)


def _bar(figure: Figure) -> Bar | None:
    ratio, target = figure.ratio, figure.target
    if not ratio or (figure.unit == "ms" and not target.text):
        return None
    label = f"{figure.name}, {figure.unit}"
    if figure.unit in LESS_IS_BETTER:
        bound = 1 / target.ratio_at_most if target.ratio_at_most else None
        return Bar(label, 1 / ratio, bound, figure.is_met)
    if figure.unit in MORE_IS_BETTER:
        return Bar(label, ratio, target.ratio_at_least, figure.is_met)
    return None


def panels(results: Sequence[Result]) -> Iterator[Panel]:
    """The curves of all sections."""
    for result in results:
        yield from (_panel(curve, result.section.peer) for curve in result.section.curves)


def _panel(curve: Curve, peer: str) -> Panel:
    ours, theirs = sorted(curve.ours.items()), sorted(curve.theirs.items())
    return Panel(curve.name, curve.over, curve.unit, ours, theirs, peer)


def chosen(every: Sequence[Panel], most: int) -> list[Panel]:
    """As many panels as there is room for: costs first, because they are what has to stay flat."""
    order = {"CPU µs": 0, "s": 1, "MB resident": 2, "MB not of files": 3}
    ranked = sorted(every, key=lambda panel: order.get(panel.unit, len(order)))
    kept = set(map(id, ranked[:most]))
    return [panel for panel in every if id(panel) in kept]
