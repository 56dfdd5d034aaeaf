"""Figures, the targets they are held against, and the tables and files they end up in.

A figure keeps all its rounds: the table shows the median and the spread, the file has everything.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).resolve().parent / "results"


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

    @property
    def ratio(self) -> float | None:
        return median(self.ours) / median(self.theirs) if self.theirs else None

    @property
    def is_met(self) -> bool | None:
        """Whether the target is reached; None when there is none."""
        return self.target.is_met(median(self.ours), self.ratio) if self.target.text else None

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "unit": self.unit,
            "cometmq": median(self.ours),
            "cometmq_rounds": list(self.ours),
            "peer": median(self.theirs) if self.theirs else None,
            "peer_rounds": list(self.theirs),
            "ratio": self.ratio,
            "target": self.target.text,
            "met": self.is_met,
        }


@dataclass(slots=True)
class Section:
    """The figures of one benchmark, with what a reader has to know about them."""

    title: str
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    peer: str = "Apache"
    """Whom ours is compared with."""

    def as_json(self) -> dict[str, object]:
        return {
            "title": self.title,
            "peer": self.peer,
            "figures": [figure.as_json() for figure in self.figures],
            "notes": self.notes,
        }


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 10 else f"{value:.1f}"


def _with_spread(rounds: Sequence[float]) -> str:
    if not rounds:
        return ""
    middle = _number(median(rounds))
    return (
        middle if len(rounds) == 1 else f"{middle} [dim]({_number(min(rounds))}–{_number(max(rounds))})[/dim]"
    )


_VERDICTS = {True: "[green]met[/green]", False: "[red]missed[/red]", None: ""}


def show(section: Section, console: Console) -> None:
    """Print the figures as a table: medians, the spread of the rounds, the ratio and its target."""
    compared = any(figure.theirs for figure in section.figures)
    table = Table(title=section.title, title_justify="left")
    table.add_column("figure", no_wrap=True)
    table.add_column("unit")
    if compared:
        table.add_column(section.peer, justify="right")
    table.add_column("CometMQ", justify="right")
    if compared:
        table.add_column("ratio", justify="right")
    table.add_column("target", justify="right")
    table.add_column("")
    for figure in section.figures:
        theirs = [_with_spread(figure.theirs)] if compared else []
        ratio = ["" if figure.ratio is None else f"{figure.ratio:.2f}×"] if compared else []
        verdict = _VERDICTS[figure.is_met]
        table.add_row(
            figure.name, figure.unit, *theirs, _with_spread(figure.ours), *ratio, figure.target.text, verdict
        )
    console.print(table)
    for note in section.notes:
        console.print(f"  {note}", style="dim")


def write_json(sections: Sequence[Section], file: Path | None) -> Path:
    """Write the results; without a file of the caller's choice, to a new one among the earlier results."""
    file = file or RESULTS / time.strftime("%Y%m%d-%H%M%S.json")
    file.parent.mkdir(parents=True, exist_ok=True)
    machine = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "load_average": os.getloadavg(),
    }
    results = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": machine,
        "sections": [section.as_json() for section in sections],
    }
    file.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    return file
