"""Figures, the targets they are held against, curves, and the tables that show them.

A figure keeps all its rounds: tables show the median and the spread, files have everything. A curve shows how
a figure goes with the size of something.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from rich.console import Console
from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure should reach; a bound that is None is no bound."""

    ratio_at_least: float | None = None
    ratio_at_most: float | None = None
    below: float | None = None
    at_least: float | None = None

    @property
    def text(self) -> str:
        bounds = []
        if self.ratio_at_least is not None:
            bounds.append(f"≥ {self.ratio_at_least:g}×")
        if self.ratio_at_most is not None:
            bounds.append(f"≤ {self.ratio_at_most:g}×")
        if self.below is not None:
            bounds.append(f"< {self.below:g}")
        if self.at_least is not None:
            bounds.append(f"≥ {self.at_least:,.0f}")
        return " and ".join(bounds)

    def is_met(self, ours: float, ratio: float | None) -> bool:
        high_enough = self.ratio_at_least is None or (ratio is not None and ratio >= self.ratio_at_least)
        low_enough = self.ratio_at_most is None or (ratio is not None and ratio <= self.ratio_at_most)
        large_enough = self.at_least is None or ours >= self.at_least
        return high_enough and low_enough and large_enough and (self.below is None or ours < self.below)


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing measured, in several rounds, of ours and perhaps of a peer's."""

    name: str
    unit: str
    ours: Sequence[float]
    theirs: Sequence[float] = ()
    target: Target = field(default_factory=Target)
    in_pairs: bool = False
    """Whether each of ours was measured right beside one of theirs: then those two are compared."""

    @property
    def ratio(self) -> float | None:
        if self.in_pairs:
            pairs = zip(self.ours, self.theirs, strict=True)
            return median(our / their for our, their in pairs)
        return median(self.ours) / median(self.theirs) if self.theirs and median(self.theirs) else None

    @property
    def is_met(self) -> bool | None:
        """Whether the target is reached; None when there is none."""
        return self.target.is_met(median(self.ours), self.ratio) if self.target.text else None


@dataclass(frozen=True, slots=True)
class Curve:
    """What something costs at one size after the other, in ours and perhaps in a peer's."""

    name: str
    over: str
    """What grows."""
    unit: str
    ours: Mapping[int, float]
    theirs: Mapping[int, float] = field(default_factory=dict)


@dataclass(slots=True)
class Section:
    """The figures of one benchmark, with what a reader has to know about them."""

    title: str
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    peer: str = "Apache"
    """Whom ours is compared with."""
    curves: list[Curve] = field(default_factory=list)


Row = list[str]
VERDICTS = {True: "met", False: "missed", None: ""}


def number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 10 else f"{value:.1f}"


def with_spread(rounds: Sequence[float]) -> str:
    """The median, and the least and the most where there was more than one round."""
    if not rounds:
        return ""
    middle = number(median(rounds))
    return middle if len(rounds) == 1 else f"{middle} ({number(min(rounds))}–{number(max(rounds))})"


def figure_rows(section: Section) -> tuple[Row, list[Row]]:
    """A section's figures as the head and the rows of a table; the first column is text."""
    compared = any(figure.theirs for figure in section.figures)
    head = ["figure", "unit", *([section.peer] if compared else []), "CometMQ"]
    head += [*(["ratio"] if compared else []), "target", ""]
    rows = []
    for figure in section.figures:
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}×"
        row = [figure.name, figure.unit, *([with_spread(figure.theirs)] if compared else [])]
        row += [with_spread(figure.ours), *([ratio] if compared else [])]
        rows.append([*row, figure.target.text, VERDICTS[figure.is_met]])
    return head, rows


def curve_tables(section: Section) -> Iterator[tuple[str, Row, list[Row]]]:
    """A section's curves as tables: a title, a head and a row for every size; units are side by side."""
    for name, over in dict.fromkeys((curve.name, curve.over) for curve in section.curves):
        curves = [one for one in section.curves if (one.name, one.over) == (name, over)]
        sides = [
            (heading, points)
            for one in curves
            for heading, points in (
                (f"CometMQ, {one.unit}", one.ours),
                (f"{section.peer}, {one.unit}", one.theirs),
            )
            if points
        ]
        sizes = sorted({size for _, points in sides for size in points})
        rows = [
            [f"{size:,}", *(number(points[size]) if size in points else "" for _, points in sides)]
            for size in sizes
        ]
        yield f"{name} over {over}", [over, *(heading for heading, _ in sides)], rows


_STYLES = {"met": "[green]met[/green]", "missed": "[red]missed[/red]"}


def show(section: Section, console: Console) -> None:
    """Print the figures as a table, the curves as one each, and the notes."""
    head, rows = figure_rows(section)
    _print_table(section.title, head, rows, console)
    for title, head, rows in curve_tables(section):
        _print_table(title, head, rows, console)
    for note in section.notes:
        console.print(f"  {note}", style="dim", markup=False)


def _print_table(title: str, head: Row, rows: list[Row], console: Console) -> None:
    table = Table(title=title, title_justify="left")
    for place, name in enumerate(head):
        is_text = name in ("figure", "unit", "")
        table.add_column(name, justify="left" if is_text else "right", no_wrap=place == 0)
    for row in rows:
        table.add_row(*(_STYLES.get(cell, escape(cell)) for cell in row))
    console.print(table)
