"""`python -m bench`: run the benchmarks, show figures, ratios and targets, and keep the results.

Rules kept here: a full run replaces the kept result of its benchmark; page and plot are then made from all
kept results. A quick run is only shown, unless `--into` names a folder.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from rich.console import Console

from bench.errors import BenchmarkError
from bench.report import figures as report
from bench.report import page, results
from bench.report.figures import Section
from bench.report.results import Result
from tests.compat.apache import JavaError, ServerError

WIDTH_IN_FILES = 140
HOME = Path(__file__).resolve().parent

BENCHMARKS = {
    "codec": "bench.codec",
    "namesrv": "bench.namesrv.namesrv",
    "store": "bench.store",
    "message-store": "bench.message_store",
    "broker": "bench.broker.broker",
    "kinds": "bench.message_types.message_types",
    "growth": "bench.growth.growth",
    "client": "bench.client.client",
    "spark": "bench.spark.spark",
}
"""The module of each benchmark, with `run(effort, say)` and the efforts `FULL` and `QUICK`.

They are imported when they run: `--only codec` needs neither Java nor the servers.
"""


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure CometMQ, beside Apache RocketMQ where there is something to compare.",
        epilog="A full run takes some forty minutes, best on a machine with nothing else to do.",
    )
    parser.add_argument("--only", choices=sorted(BENCHMARKS), help="run one benchmark")
    parser.add_argument(
        "--quick", action="store_true", help="under a minute a benchmark: to try a change out"
    )
    parser.add_argument(
        "--into",
        type=Path,
        metavar="FOLDER",
        help="keep results, page and plot there; otherwise in bench/, and those of a quick run nowhere",
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="CHECKOUT",
        help="compare with another checkout of CometMQ in turns, e.g. one of the last release; kept nowhere",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    wanted = _arguments(argv)
    tables, progress = Console(), Console(stderr=True, style="dim", soft_wrap=True)
    if not tables.is_terminal:
        tables.width = WIDTH_IN_FILES
    begun = time.monotonic()

    def say(text: str) -> None:
        progress.print(f"[{time.monotonic() - begun:5.0f} s] {text}", markup=False, highlight=False)

    home = wanted.into or (None if wanted.quick or wanted.against else HOME)
    failed = False
    for name in [wanted.only] if wanted.only else BENCHMARKS:
        try:
            result = _measure(name, wanted.quick, wanted.against, say)
        except BenchmarkError as problem:
            failed = True
            say(f"{name} failed: {problem}")
            continue
        report.show(result.section, tables)
        if home is not None:
            results.keep(result, home / "results")
    if home is not None:
        _publish(home, say)
    return 1 if failed else 0


def _measure(name: str, quick: bool, against: Path | None, say: Callable[[str], None]) -> Result:
    machine, at, begun = results.this_machine(), results.now(), time.monotonic()
    section = _section(name, quick, against, say)
    took = round(time.monotonic() - begun, 1)
    return Result(name, at, quick, machine, results.versions(), section, took)


def _section(name: str, quick: bool, against: Path | None, say: Callable[[str], None]) -> Section:
    try:
        if against is None:
            benchmark = import_module(BENCHMARKS[name])
            section: Section = benchmark.run(benchmark.QUICK if quick else benchmark.FULL, say)
            return section
        from bench.broker import before_after

        return before_after.run(name, against, quick, say)
    except (ServerError, JavaError) as problem:
        raise BenchmarkError(str(problem)) from problem


def _publish(home: Path, say: Callable[[str], None]) -> None:
    """Write the page and the plot again, from the newest result of every benchmark."""
    kept = list(results.newest(BENCHMARKS, home / "results"))
    try:
        from bench.report import plot
    except ImportError:
        say("no plot: it needs matplotlib, `pip install -e '.[bench]'` has it")
        with_plot = False
    else:
        plot.draw(kept, home / page.PLOT_NAME)
        with_plot = True
    page.write_page(kept, home / "RESULTS.md", with_plot=with_plot)
    say("the results are in RESULTS.md")


if __name__ == "__main__":
    sys.exit(main())
