"""`RESULTS.md`: the newest result of every benchmark on one page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.report.figures import Row, curve_tables, figure_rows
from bench.report.results import Machine, Result

PLOT_NAME = "results.svg"

_HEAD = """\
# Benchmark results

CometMQ beside Apache RocketMQ, Kafka and the C++ client's Python binding. `make bench` writes this page; do
not edit it. `.venv/bin/python -m bench --only NAME` measures one section and leaves the others as they are.
"""

_METHOD = """\
## How it was measured

- Both sides of a comparison take turns on one machine in one run; the side that begins changes from round to
  round. A figure is the median of its rounds, with the smallest and the largest in parentheses. The ratio is
  CometMQ's figure divided by the peer's. A JVM is warmed up for half a minute.
- Brokers and name servers get frames that were encoded before, from a load generator in its own process.
  "4 × 64" is 4 connections with 64 requests in flight on each. An answer with an error ends the benchmark.
- CPU is the processor time of the server process within the measured time. Resident memory includes pages of
  mapped files; "not of files" does not. A server is ready when it answers a request.
- Under "Growth" each size takes turns with a new broker of the smallest size, because machines drift:
  "10,000 over 1" is the processor time of a request at the largest size, divided by that of the small broker.
"""


def page(results: Sequence[Result], *, with_plot: bool) -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_summary(results, with_plot), *_sections(results), _METHOD])


def write_page(results: Sequence[Result], file: Path, *, with_plot: bool) -> None:
    file.write_text(page(results, with_plot=with_plot))


def _summary(results: Sequence[Result], with_plot: bool) -> Iterator[str]:
    verdicts = [figure.is_met for result in results for figure in result.section.figures]
    met, judged = verdicts.count(True), len(verdicts) - verdicts.count(None)
    yield f"{met} of {judged} targets met.\n"
    machines = dict.fromkeys(_machine(result.machine) for result in results)
    yield f"Machine: {'; '.join(machines)}. "
    versions = dict.fromkeys(f"{name} {it}" for result in results for name, it in result.versions.items())
    yield f"Versions: {', '.join(sorted(versions))}.\n"
    yield from _table(
        ["section", "measured", "took", "load before", "targets met"],
        [_summary_row(result) for result in results],
    )
    if with_plot:
        yield f"![Ratios against the peers, and growth]({PLOT_NAME})\n"


def _machine(machine: Machine) -> str:
    return f"{machine.cores} cores of {machine.processor}, {machine.memory_gb} GB, {machine.system}"


def _summary_row(result: Result) -> Row:
    verdicts = [figure.is_met for figure in result.section.figures if figure.is_met is not None]
    quick = ", a quick run" if result.quick else ""
    judged = f"{verdicts.count(True)} of {len(verdicts)}" if verdicts else ""
    title = f"[{result.section.title}](#{_anchor(result.section.title)})"
    load = f"{result.machine.load_average:.1f}"
    return [title, result.at + quick, f"{result.seconds / 60:.0f} min", load, judged]


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _sections(results: Sequence[Result]) -> Iterator[str]:
    for result in results:
        yield f"## {result.section.title}\n"
        yield from _table(*figure_rows(result.section))
        for title, head, rows in curve_tables(result.section):
            yield f"### {title[0].upper()}{title[1:]}\n"
            yield from _table(head, rows)
        if result.section.notes:
            yield "".join(f"- {note}\n" for note in result.section.notes)


def _table(head: Row, rows: Sequence[Row]) -> Iterator[str]:
    """A table whose columns are as wide as they need to be, so that the source can be read, too."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (head, *rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(head))]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    lines.insert(1, " | ".join("-" * max(width, 3) for width in widths))
    yield "".join(f"| {line} |\n" for line in lines)
