"""Results that are kept, the page that is made of them, and what the plot will show."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import BenchmarkError
from bench.report.figures import Section
from bench.report.page import page
from bench.report.plot_data import bar_groups, chosen, panels
from bench.report.results import keep, newest
from tests.unit.bench.results_kit import BROKER, GROWTH, result

NAMES = ("codec", "broker", "growth")
BOTH = [result("broker", BROKER), result("growth", GROWTH)]


def row_of(text: str, begin: str) -> list[str]:
    """The cells of the row of a table that begins so."""
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {begin} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_what_is_kept_is_read_again_as_it_was(tmp_path: Path) -> None:
    for one in reversed(BOTH):
        keep(one, tmp_path / "results")
    read = list(newest(NAMES, tmp_path / "results"))
    assert [one.name for one in read] == ["broker", "growth"]
    assert [page([one], with_plot=True) for one in read] == [page([one], with_plot=True) for one in BOTH]


def test_a_run_of_one_benchmark_replaces_its_own_section_only(tmp_path: Path) -> None:
    for one in BOTH:
        keep(one, tmp_path)
    keep(result("growth", Section("Growth"), at="2026-05-06 07:08 UTC"), tmp_path)
    broker, growth = newest(NAMES, tmp_path)
    assert (broker.at, len(broker.section.figures)) == (BOTH[0].at, len(BROKER.figures))
    assert (growth.at, growth.section.figures) == ("2026-05-06 07:08 UTC", [])


def test_a_file_that_is_no_result_says_how_to_replace_it(tmp_path: Path) -> None:
    (tmp_path / "broker.json").write_text('{"name": "broker"}')
    with pytest.raises(BenchmarkError, match=r"broker\.json is no result .*run `--only broker` again"):
        list(newest(NAMES, tmp_path))


def test_the_page_shows_medians_with_their_spread_ratios_and_verdicts() -> None:
    text = page(BOTH, with_plot=True)
    ours = "7,500 (7,000–8,000)"
    assert row_of(text, "sends, 1 × 1") == [
        "sends, 1 × 1",
        "a second",
        "5,000",
        ours,
        "1.50×",
        "≥ 1.2×",
        "met",
    ]
    assert row_of(text, "send to listener, median")[-3:] == ["1.20×", "≤ 0.5×", "missed"]
    assert row_of(text, "standalone, start to ready")[2:] == ["", "0.6", "", "< 1", "met"]
    assert "3 of 4 targets met" in text
    assert row_of(text, "[Broker](#broker)")[1:] == ["2026-01-02 03:04 UTC", "2 min", "0.2", "2 of 3"]
    assert "- 128-byte bodies" in text


def test_the_page_shows_curves_as_tables_with_a_row_for_each_size() -> None:
    text = page(BOTH, with_plot=False)
    head = ["topics", "CometMQ, CPU µs", "Apache, CPU µs", "CometMQ, p99 ms"]
    assert row_of(text.partition("### Sends over topics")[2].partition("###")[0], "topics") == head
    assert row_of(text, "100   ") == ["100", "9.9", "27.0", "2"]
    assert "### Start to ready over topics" in text


def test_the_page_says_when_a_section_is_of_a_quick_run_and_shows_a_plot_only_if_there_is_one() -> None:
    text = page([result("growth", GROWTH, quick=True)], with_plot=False)
    assert "2026-01-02 03:04 UTC, a quick run" in text
    assert "results.svg" not in text
    assert "](results.svg)" in page(BOTH, with_plot=True)


def test_a_bar_is_longer_the_better_whichever_way_the_figure_counts() -> None:
    (group,) = bar_groups(BOTH)
    bars = {bar.label: bar for bar in group.bars}
    rate, latency = bars["sends, 1 × 1, a second"], bars["send to listener, median, ms"]
    assert (rate.better, rate.target, rate.is_met) == (1.5, 1.2, True)
    assert latency.better == pytest.approx(0.5 / 0.6)
    assert (latency.target, latency.is_met) == (2.0, False)
    assert bars["CPU a million messages, sends, 1 × 1, s"].better == pytest.approx(3.0)


def test_no_bar_is_drawn_for_what_has_no_peer_or_follows_from_the_rates() -> None:
    (group,) = bar_groups(BOTH)
    assert group.title == "Broker, against Apache"
    assert len(group.bars) == 3


def test_costs_have_panels_before_everything_else() -> None:
    every = list(panels(BOTH))
    assert [(panel.title, panel.unit) for panel in chosen(every, 2)] == [
        ("sends", "CPU µs"),
        ("start to ready", "s"),
    ]
    assert every[0].ours == [(1, 9.0), (100, 9.9)]
    assert every[0].theirs == [(1, 30.0), (100, 27.0)]
