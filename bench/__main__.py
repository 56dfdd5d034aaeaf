"""`python -m bench`: run the benchmarks, show figure, ratio and target, and keep the results.

Rules kept here: a full run of a benchmark replaces what was kept of it, and the page and the plot are then
made from all that is kept. A quick run is shown and not kept, unless it is told where.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from bench.errors import BenchmarkError
from bench.report import figures as report
from bench.report import page, results
from bench.report.figures import Section
from bench.report.results import Result

Benchmark = Callable[[bool, Callable[[str], None]], Section]


# Imported when they run: `--only codec` then needs neither Java nor the servers.
def _namesrv(quick: bool, say: Callable[[str], None]) -> Section:
    from bench.namesrv import namesrv

    return namesrv.run(namesrv.QUICK if quick else namesrv.FULL, say)


def _codec(quick: bool, say: Callable[[str], None]) -> Section:
    from bench import codec

    return codec.run(codec.QUICK if quick else codec.FULL, say)


def _store(quick: bool, say: Callable[[str], None]) -> Section:
    from bench import store

    return store.run(store.QUICK if quick else store.FULL, say)


def _message_store(quick: bool, say: Callable[[str], None]) -> Section:
    from bench import message_store

    return message_store.run(message_store.QUICK if quick else message_store.FULL, say)


def _broker(quick: bool, say: Callable[[str], None]) -> Section:
    from bench.broker import broker

    return broker.run(broker.QUICK if quick else broker.FULL, say)


def _message_types(quick: bool, say: Callable[[str], None]) -> Section:
    from bench.message_types import message_types

    return message_types.run(message_types.QUICK if quick else message_types.FULL, say)


def _client(quick: bool, say: Callable[[str], None]) -> Section:
    from bench.client import client

    return client.run(client.QUICK if quick else client.FULL, say)


def _spark(quick: bool, say: Callable[[str], None]) -> Section:
    from bench.spark import spark

    return spark.run(spark.QUICK if quick else spark.FULL, say)


def _growth(quick: bool, say: Callable[[str], None]) -> Section:
    from bench.growth import growth

    return growth.run(growth.QUICK if quick else growth.FULL, say)


WIDTH_IN_FILES = 140
HOME = Path(__file__).resolve().parent

BENCHMARKS: dict[str, Benchmark] = {
    "codec": _codec,
    "namesrv": _namesrv,
    "store": _store,
    "message-store": _message_store,
    "broker": _broker,
    "kinds": _message_types,
    "growth": _growth,
    "client": _client,
    "spark": _spark,
}


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure CometMQ, beside Apache RocketMQ where there is something to compare.",
        epilog="A full run takes some forty minutes, best on a machine with nothing else to do.",
    )
    parser.add_argument("--only", choices=sorted(BENCHMARKS), help="run one benchmark")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: to try a change out")
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
    if against is None:
        return BENCHMARKS[name](quick, say)
    from bench.broker import before_after

    return before_after.run(name, against, quick, say)


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
