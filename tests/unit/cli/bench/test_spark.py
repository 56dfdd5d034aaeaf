"""`cometmq bench spark` before Spark starts, and what it shows afterwards."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec

import pytest

from cometmq.cli.bench.spark import SparkResult, SparkRun, show, spark
from cometmq.cli.common.connect import Link
from cometmq.model.errors import SettingsError


def test_missing_pyspark_is_the_sentence_of_the_pipelines(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec

    def without_pyspark(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "pyspark" else found(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without_pyspark)
    with pytest.raises(SettingsError, match="need PySpark, which is not installed; install it with: pip"):
        spark("trial", link=Link("127.0.0.1:1"))


def test_runs_are_shown_one_a_line_and_what_was_read_below(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [SparkRun(2.0, 1_000_000.0, 128_000_000.0), SparkRun(1.0, 2_000_000.0, 256_000_000.0)]
    show(SparkResult("trial", "local[2]", 2_000_000, 256_000_000, 1, 1_000_000.0, 128_000_000.0, runs))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["run", "seconds", "rows/s", "MB/s"],
        ["1", "2.00", "1,000,000", "128.00"],
        ["2", "1.00", "2,000,000", "256.00"],
    ]
    assert lines[3] == "2,000,000 rows, 256.0 MB, 1 partition, local[2]"
