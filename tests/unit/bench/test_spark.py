"""The Spark benchmark apart from Spark: who is asked when, what counts, and what workers are."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

from bench.report.figures import Target
from bench.spark.spark import Contest
from bench.spark.watch import core_seconds, is_worker

ROWS = 1_000


def contest(asked: list[str]) -> Contest:
    names = ("live source", "log source", "Kafka")
    return Contest("count", {name: (partial(asked.append, name), Target()) for name in names})


def test_all_are_asked_in_turns_and_the_one_that_begins_changes() -> None:
    asked: list[str] = []
    contest(asked).take_turns(1, lambda _: None)
    assert asked == ["Kafka", "log source", "live source", "live source", "log source", "Kafka"]


def test_the_first_time_does_not_count() -> None:
    held = contest([])
    held.take_turns(3, lambda _: None)
    assert {name: len(seconds) for name, seconds in held.seconds.items()} == dict.fromkeys(held.entries, 3)


def test_a_figure_is_ours_over_those_of_kafka() -> None:
    held = contest([])
    held.seconds = {"live source": [1.0], "log source": [0.5], "Kafka": [2.0]}
    held.cores = {"live source": [0.002]}
    live, log = held.figures(ROWS)
    assert (live.name, live.ours, live.theirs, live.ratio) == ("count, live source", [1000.0], [500.0], 2.0)
    assert log.ratio == 4.0
    assert held.note(ROWS) == "core seconds a million rows, count: live source 2.00"


def test_core_seconds_of_processes_that_ended_are_counted_where_they_were_waited_for() -> None:
    work = "import subprocess, sys, time\n"
    work += "subprocess.run([sys.executable, '-c', 'sum(range(10**7))'], check=True)\n"
    work += "print('done', flush=True)\ntime.sleep(600)"
    before = core_seconds()
    with subprocess.Popen([sys.executable, "-c", work], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"done\n"
            assert core_seconds() - before > 0.05
        finally:
            process.kill()


def test_workers_are_the_python_processes_of_spark_and_not_its_java() -> None:
    assert is_worker(["/venv/bin/python", "-m", "pyspark.daemon", "pyspark.worker"])
    assert not is_worker(["java", "-cp", "/venv/site-packages/pyspark/jars/*", "SparkSubmit"])
    assert not is_worker(["/venv/bin/python", "-m", "cometmq.cli.main", "broker"])
    assert not is_worker([])
