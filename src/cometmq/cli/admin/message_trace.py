"""The life of a message, as `cometmq message trace` shows it."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from cometmq.cli.common.output import time_text

if TYPE_CHECKING:
    from cometmq.client.trace.query import Consumption, MessageTrace


def trace_lines(trace: MessageTrace) -> list[str]:
    """One line for everything that happened, in the order of time."""
    from cometmq.client.trace.records import TraceMessageType

    lines: list[tuple[int, str]] = []
    for sent in trace.sent:
        kind = _name(TraceMessageType, sent.message_type)
        lines.append(
            (
                sent.timestamp_ms,
                f"sent to {sent.topic} at {sent.store_host} by {sent.group} from {sent.client_host}: "
                f"{kind}, {sent.body_length} bytes, {sent.cost_ms} ms, {'ok' if sent.success else 'unsafe'}",
            )
        )
    for ended in trace.transactions:
        asked = " when the broker asked" if ended.from_check else ""
        lines.append((ended.timestamp_ms, f"transaction ended by {ended.group}{asked}: {ended.state}"))
    for recall in trace.recalls:
        outcome = "ok" if recall.success else "failed"
        lines.append((recall.timestamp_ms, f"taken back by {recall.group}: {outcome}"))
    lines += [(each.began_ms or 0, _consumption_text(each)) for each in trace.consumptions]
    return [f"{time_text(timestamp_ms)}  {text}" for timestamp_ms, text in sorted(lines)]


def _consumption_text(consumption: Consumption) -> str:
    from cometmq.client.trace.records import ConsumeOutcome

    outcome = "not ended"
    if consumption.outcome is not None:
        outcome = f"{_name(ConsumeOutcome, consumption.outcome)}, {consumption.cost_ms} ms"
    return (
        f"consumed by {consumption.group} from {consumption.client_host}, "
        f"attempt {consumption.retry_times + 1}: {outcome}"
    )


def _name(kind: type[IntEnum], value: int) -> str:
    """What a number of a newer client stands for is not known here."""
    return kind(value).name.lower().replace("_", " ") if value in set(kind) else str(value)
