"""Draws the plot of results; `plot_data.py` decides what it shows.

The colours are those of Okabe and Ito, which most people can tell apart; missed targets are hatched, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter

from bench.report.plot_data import Bar, BarGroup, Panel, bar_groups, chosen, panels
from bench.report.results import Result

OURS, PEER, MISSED, PLAIN = "#0072B2", "#E69F00", "#D55E00", "#8FBBD9"
COLOURS = {True: OURS, False: MISSED, None: PLAIN}
BAR_INCHES, PANEL_INCHES = 0.21, 2.1
PANEL_COLUMNS = 2
MAX_PANELS = 16
STYLE = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "cometmq",
}


def draw(results: Sequence[Result], file: Path) -> None:
    """Write the picture; its format is that of the file's name."""
    groups, curves = list(bar_groups(results)), chosen(list(panels(results)), MAX_PANELS)
    rows = ceil(len(curves) / PANEL_COLUMNS)
    bars = sum(len(group.bars) + 1.5 for group in groups)
    height = max(3.0, bars * BAR_INCHES + 1.2, rows * PANEL_INCHES + 0.8)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(14 if curves else 8, height), layout="constrained")
        left, right = figure.subfigures(1, 2, width_ratios=[1.25, 1]) if curves else (figure, None)
        if groups:
            _draw_bars(left.add_subplot(), groups)
        if right is not None:
            grid = GridSpec(rows, PANEL_COLUMNS, figure=right)
            for place, panel in enumerate(curves):
                _draw_panel(right.add_subplot(grid[place // PANEL_COLUMNS, place % PANEL_COLUMNS]), panel)
        metadata = {"Date": None} if file.suffix == ".svg" else None
        figure.savefig(file, metadata=metadata, dpi=100)


def _draw_bars(axes: Axes, groups: Sequence[BarGroup]) -> None:
    """One bar a figure, from the top, with its number behind it and its target as a mark."""
    place, labels = 0.0, {}
    for group in groups:
        axes.text(
            0.01,
            place,
            group.title,
            transform=axes.get_yaxis_transform(),
            weight="bold",
            va="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        )
        place += 1
        for bar in group.bars:
            labels[place] = bar.label
            _draw_bar(axes, place, bar)
            place += 1
        place += 0.5
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(_times))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks([tick for tick in (0.25, 0.5, 1, 2, 4, 8, 16, 32) if _is_inside(tick, groups)])
    axes.set_yticks(list(labels), list(labels.values()))
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", which="minor", length=0)
    axes.set_ylim(place - 0.5, -0.8)
    axes.margins(x=0.08)
    axes.set_xlabel("times better than the peer (logarithmic)")
    axes.legend(
        handles=[
            Patch(color=OURS, label="target met"),
            Patch(facecolor=MISSED, hatch="////", edgecolor="white", label="target missed"),
            Patch(color=PLAIN, label="no target"),
            Line2D([], [], color="black", marker="|", markersize=9, linestyle="", label="target"),
        ],
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=4,
        frameon=False,
    )


def _is_inside(tick: float, groups: Sequence[BarGroup]) -> bool:
    every = [bar.better for group in groups for bar in group.bars]
    return min(*every, 1.0) / 1.5 <= tick <= max(*every, 1.0) * 1.5


def _draw_bar(axes: Axes, place: float, bar: Bar) -> None:
    hatch = "////" if bar.is_met is False else None
    axes.barh(
        place, bar.better - 1, left=1, height=0.72, color=COLOURS[bar.is_met], hatch=hatch, edgecolor="white"
    )
    if bar.target is not None:
        axes.plot(bar.target, place, marker="|", color="black", markersize=9, markeredgewidth=1.6)
    outwards = 1 if bar.better >= 1 else -1
    axes.annotate(
        f"{bar.better:.2f}",
        (bar.better, place),
        xytext=(3 * outwards, 0),
        textcoords="offset points",
        va="center",
        ha="left" if outwards > 0 else "right",
        fontsize=7,
    )


def _draw_panel(axes: Axes, panel: Panel) -> None:
    axes.plot(*zip(*panel.ours, strict=True), color=OURS, marker="o", markersize=4, label="CometMQ")
    if panel.theirs:
        points = zip(*panel.theirs, strict=True)
        axes.plot(*points, color=PEER, marker="s", markersize=4, linestyle="--", label=panel.peer)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_title(f"{panel.title}: {panel.unit}", loc="left", fontsize=8)
    axes.set_xlabel(panel.over, fontsize=7)
    axes.set_xticks([size for size, _ in panel.ours])
    axes.xaxis.set_major_formatter(FuncFormatter(_short))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="minor", length=0)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axes.legend(fontsize=6.5, frameon=False, loc="best")


def _times(value: float, _: int | None = None) -> str:
    return f"{value:g}×"


def _short(value: float, _: int | None = None) -> str:
    for limit, letter in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{letter}"
    return f"{value:g}"
