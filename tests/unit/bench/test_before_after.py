"""`--against`: figures of two checkouts are matched by name and held against each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.broker import before_after
from bench.errors import BenchmarkError
from bench.report.figures import Figure


def quiet(text: str) -> None:
    """Progress is not what these tests look at."""


def checkout(home: Path) -> Path:
    (home / "src" / "cometmq").mkdir(parents=True)
    return home


def test_a_rate_that_falls_by_more_than_three_per_cent_misses_its_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = checkout(tmp_path)

    def measured(name: str, tree: Path) -> list[Figure]:
        rate = 100.0 if tree == older else 96.0
        cost = 10.0 if tree == older else 10.2
        return [Figure("puts", "a second", [rate]), Figure("CPU a million", "s", [cost])]

    monkeypatch.setattr(before_after, "_measured", measured)
    section = before_after.run("store", older, True, quiet)
    assert [(one.name, one.is_met) for one in section.figures] == [("puts", False), ("CPU a million", True)]
    assert section.figures[0].ratio == pytest.approx(0.96)


def test_a_figure_that_only_one_checkout_has_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = checkout(tmp_path)

    def measured(name: str, tree: Path) -> list[Figure]:
        new = [] if tree == older else [Figure("reads", "a second", [1.0])]
        return [Figure("puts", "a second", [1.0]), *new]

    monkeypatch.setattr(before_after, "_measured", measured)
    assert [one.name for one in before_after.run("store", older, True, quiet).figures] == ["puts"]


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="no checkout of CometMQ"):
        before_after.run("store", tmp_path, True, quiet)
