"""`python -m bench`: what is kept of a run, and what the page then shows."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench import __main__ as program
from bench.errors import BenchmarkError
from bench.report.figures import Section
from tests.unit.bench.results_kit import BROKER, GROWTH


@pytest.fixture(autouse=True)
def two_benchmarks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two that have their figures at once; no plot, because drawing needs more than the tests have."""
    for name, section in {"broker": BROKER, "growth": GROWTH}.items():
        found = SimpleNamespace(run=lambda effort, say, found=section: found, QUICK=None, FULL=None)
        monkeypatch.setitem(sys.modules, f"bench.fake.{name}", found)
    monkeypatch.setattr(program, "BENCHMARKS", {name: f"bench.fake.{name}" for name in ("broker", "growth")})
    monkeypatch.setattr(program, "HOME", tmp_path)
    monkeypatch.setitem(sys.modules, "bench.report.plot", None)


def titles(home: Path) -> list[str]:
    page = (home / "RESULTS.md").read_text()
    return [line for line in page.splitlines() if line in ("## Broker", "## Growth")]


def test_a_run_of_one_benchmark_leaves_the_others_on_the_page(tmp_path: Path) -> None:
    assert program.main(["--only", "growth"]) == 0
    assert titles(tmp_path) == ["## Growth"]
    assert program.main(["--only", "broker"]) == 0
    assert titles(tmp_path) == ["## Broker", "## Growth"]


def test_a_quick_run_is_kept_only_where_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["--quick"]) == 0
    assert "sends over topics" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    assert program.main(["--quick", "--into", str(tmp_path / "tried")]) == 0
    assert titles(tmp_path / "tried") == ["## Broker", "## Growth"]
    assert "a quick run" in (tmp_path / "tried" / "RESULTS.md").read_text()


def test_a_benchmark_that_fails_leaves_its_earlier_result_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main([]) == 0

    def fails(effort: object, say: object) -> Section:
        raise BenchmarkError("the broker was gone")

    monkeypatch.setattr(sys.modules["bench.fake.growth"], "run", fails)
    assert program.main([]) == 1
    assert "growth failed: the broker was gone" in capsys.readouterr().err
    assert titles(tmp_path) == ["## Broker", "## Growth"]


def test_without_matplotlib_the_page_is_there_and_the_way_to_a_plot_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["--only", "broker"]) == 0
    assert "no plot: it needs matplotlib" in capsys.readouterr().err
    assert "results.svg" not in (tmp_path / "RESULTS.md").read_text()
