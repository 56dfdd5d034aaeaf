"""Results of `cometmq pipeline sql`, `dead-letters` and `traces` as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from cometmq.cli.common.output import Cell, note, print_json, print_table, time_text

if TYPE_CHECKING:
    from cometmq.spark.pipelines.dead_letters import DeadLetterReport
    from cometmq.spark.pipelines.sql import Rows
    from cometmq.spark.pipelines.traces import Line, TraceReport


def show_rows(rows: Rows, *, as_json: bool) -> None:
    if as_json:
        print_json(rows, compact=rows.batch is not None)
        return
    cells = [[_cell(value) for value in row] for row in rows.rows]
    print_table(rows.columns, cells)
    if rows.is_cut:
        note(f"these are the first {len(rows.rows)} rows; --limit shows more")


def _cell(value: object) -> Cell:
    return value if isinstance(value, str | int | float) or value is None else str(value)


def show_dead_letters(report: DeadLetterReport) -> None:
    titles = ("group", "topic", "reason", "host", "messages", "attempts", "last (UTC)", "last id")
    rows = [
        (
            line.group,
            line.topic,
            line.reason,
            line.host,
            line.count,
            line.most_attempts,
            time_text(line.last_timestamp),
            line.msg_id,
        )
        for line in report.lines
    ]
    print_table(titles, rows, right=("messages", "attempts"), marked=("group",))
    if report.messages and not report.traced:
        note("there are no traces, so no reason is known; consumers write them with enable_trace=True")


def show_traces(report: TraceReport) -> None:
    _show_lines("sent", report.sends)
    _show_lines("delivered", report.deliveries)
    _show_lines("consumed", report.consumptions)
    if report.failures:
        rows = [(each.group, each.outcome, each.count, each.msg_id) for each in report.failures]
        print_table(("failures of group", "outcome", "messages", "one of them"), rows, right=("messages",))


def _show_lines(what: str, lines: Sequence[Line]) -> None:
    titles = (what, "group", "messages", "failed", "p50 ms", "p95 ms", "p99 ms", "longest ms")
    rows = [
        (each.topic, each.group, each.count, each.failed, each.p50, each.p95, each.p99, each.longest)
        for each in lines
    ]
    print_table(titles, rows, right=titles[2:], marked=(what,))
    typer.echo()
