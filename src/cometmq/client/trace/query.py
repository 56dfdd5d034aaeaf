"""The trace of a message, gathered from the records that its clients wrote.

Rule kept here: a consumption has one record for its beginning and one for its end. Without an end it is still
running, or its consumer died.
"""

from __future__ import annotations

import msgspec

from cometmq.client.trace.records import (
    ConsumeBegan,
    ConsumeEnded,
    RecallTrace,
    SendTrace,
    TraceRecord,
    TransactionTrace,
)


class ConsumeTrace(msgspec.Struct, frozen=True, kw_only=True):
    """One delivery of the message."""

    group: str
    client_host: str
    request_id: str
    began_ms: int | None
    retry_times: int
    cost_ms: int | None = None
    success: bool | None = None
    """None if it has not ended, as far as known."""
    outcome: int | None = None


class MessageTrace(msgspec.Struct, kw_only=True):
    """The trace of a message, the oldest records first."""

    msg_id: str
    sent: list[SendTrace] = []
    transactions: list[TransactionTrace] = []
    consumptions: list[ConsumeTrace] = []
    recalls: list[RecallTrace] = []

    @property
    def is_empty(self) -> bool:
        return not (self.sent or self.transactions or self.consumptions or self.recalls)


def gather(msg_id: str, records: list[tuple[TraceRecord, str]]) -> MessageTrace:
    """The trace of a message from its records, each with the address of the client that wrote it."""
    trace = MessageTrace(msg_id=msg_id)
    began: dict[str, tuple[ConsumeBegan, str]] = {}
    ended: dict[str, tuple[ConsumeEnded, str]] = {}
    for record, host in records:
        if isinstance(record, SendTrace):
            trace.sent.append(msgspec.structs.replace(record, client_host=record.client_host or host))
        elif isinstance(record, ConsumeBegan):
            began[record.request_id] = record, host
        elif isinstance(record, ConsumeEnded):
            ended[record.request_id] = record, host
        elif isinstance(record, TransactionTrace):
            trace.transactions.append(record)
        else:
            trace.recalls.append(record)
    for request_id in {**began, **ended}:
        trace.consumptions.append(_consumption(request_id, began.get(request_id), ended.get(request_id)))
    trace.sent.sort(key=lambda record: record.timestamp_ms)
    trace.transactions.sort(key=lambda record: record.timestamp_ms)
    trace.recalls.sort(key=lambda record: record.timestamp_ms)
    trace.consumptions.sort(key=lambda each: each.began_ms or 0)
    return trace


def _consumption(
    request_id: str, began: tuple[ConsumeBegan, str] | None, ended: tuple[ConsumeEnded, str] | None
) -> ConsumeTrace:
    first, last = began[0] if began else None, ended[0] if ended else None
    began_ms = first.timestamp_ms if first else None
    if began_ms is None and last is not None and last.timestamp_ms is not None:
        began_ms = last.timestamp_ms - last.cost_ms
    return ConsumeTrace(
        group=(first.group if first else None) or (last.group if last else None) or "",
        client_host=(began or ended or (None, ""))[1],
        request_id=request_id,
        began_ms=began_ms,
        retry_times=first.retry_times if first else 0,
        cost_ms=last.cost_ms if last else None,
        success=last.success if last else None,
        outcome=last.outcome if last else None,
    )
