"""`python -m bench`: run the benchmarks, show figure, ratio and target, and keep the results as JSON."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from bench import report
from bench.errors import BenchmarkError
from bench.report import Section

Benchmark = Callable[[bool, Callable[[str], None]], Section]


# Imported when they run: `--only codec` then needs neither Java nor the servers.
def _namesrv(quick: bool, say: Callable[[str], None]) -> Section:
    from bench import namesrv

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
    from bench import broker

    return broker.run(broker.QUICK if quick else broker.FULL, say)


def _kinds(quick: bool, say: Callable[[str], None]) -> Section:
    from bench import kinds

    return kinds.run(kinds.QUICK if quick else kinds.FULL, say)


def _client(quick: bool, say: Callable[[str], None]) -> Section:
    from bench import client

    return client.run(client.QUICK if quick else client.FULL, say)


def _spark(quick: bool, say: Callable[[str], None]) -> Section:
    from bench import spark

    return spark.run(spark.QUICK if quick else spark.FULL, say)


WIDTH_IN_FILES = 140

BENCHMARKS: dict[str, Benchmark] = {
    "codec": _codec,
    "namesrv": _namesrv,
    "store": _store,
    "message-store": _message_store,
    "broker": _broker,
    "kinds": _kinds,
    "client": _client,
    "spark": _spark,
}


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure CometMQ, beside Apache RocketMQ where there is something to compare.",
        epilog="A full run takes some twenty minutes, best on a machine with nothing else to do.",
    )
    parser.add_argument("--only", choices=sorted(BENCHMARKS), help="run one benchmark")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: to try a change out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    wanted = _arguments(argv)
    tables, progress = Console(), Console(stderr=True, style="dim", soft_wrap=True)
    if not tables.is_terminal:
        tables.width = WIDTH_IN_FILES
    begun = time.monotonic()

    def say(text: str) -> None:
        progress.print(f"[{time.monotonic() - begun:5.0f} s] {text}", markup=False, highlight=False)

    sections: list[Section] = []
    failed = False
    for name in [wanted.only] if wanted.only else BENCHMARKS:
        try:
            sections.append(BENCHMARKS[name](wanted.quick, say))
        except BenchmarkError as problem:
            failed = True
            say(f"{name} failed: {problem}")
        else:
            report.show(sections[-1], tables)
    say(f"results written to {report.write_json(sections, wanted.json)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
