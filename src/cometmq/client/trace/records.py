"""Trace records in the format of Apache's clients.

Rules kept here:
- A record is its fields as text, separated by 0x01 and ended by 0x02; a missing value is `null`.
- Several records make the body of a trace message, whose keys are the ids and keys of the traced messages.
- A record may come from an older client, with fewer fields, or a newer one, with more. One that cannot be
  read is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Final

import msgspec

from cometmq.model.java_numbers import long_of

FIELD_SEPARATOR: Final = "\x01"
RECORD_SEPARATOR: Final = "\x02"
_NOTHING: Final = "null"


class TraceMessageType(IntEnum):
    """The type of a sent message."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAYED = 3
    ORDERED = 4


class ConsumeOutcome(IntEnum):
    """The outcome of a listener."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    NOTHING_RETURNED = 3
    FAILED = 4


class Sent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message was sent (`Pub`)."""

    timestamp_ms: int
    region_id: str
    group: str
    topic: str
    msg_id: str
    tags: str | None
    keys: str | None
    store_host: str
    body_length: int
    cost_ms: int
    message_type: int
    offset_msg_id: str | None
    success: bool
    client_host: str | None = None


class ConsumeBegan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A consumer got a message (`SubBefore`)."""

    timestamp_ms: int
    region_id: str | None
    group: str
    request_id: str
    """Matches the record of its end."""
    msg_id: str
    retry_times: int
    keys: str | None


class ConsumeEnded(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The listener has ended (`SubAfter`)."""

    request_id: str
    msg_id: str
    cost_ms: int
    success: bool
    keys: str | None
    outcome: int
    timestamp_ms: int | None
    group: str | None


class TransactionEnded(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A producer told the broker how a transaction ended (`EndTransaction`)."""

    timestamp_ms: int
    region_id: str
    group: str
    topic: str
    msg_id: str
    tags: str | None
    keys: str | None
    store_host: str
    message_type: int
    transaction_id: str | None
    state: str
    from_check: bool


class Recalled(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A delayed message was recalled (`Recall`)."""

    timestamp_ms: int
    region_id: str
    group: str
    topic: str
    msg_id: str
    success: bool


TraceRecord = Sent | ConsumeBegan | ConsumeEnded | TransactionEnded | Recalled

_NAMES: Final[dict[type[TraceRecord], str]] = {
    Sent: "Pub",
    ConsumeBegan: "SubBefore",
    ConsumeEnded: "SubAfter",
    TransactionEnded: "EndTransaction",
    Recalled: "Recall",
}
_NOT_WRITTEN: Final = frozenset({"client_host"})
"""Fields that only some other clients write."""


def encode_record(record: TraceRecord) -> str:
    """Encode a record, with its separator."""
    values = [getattr(record, name) for name in record.__struct_fields__ if name not in _NOT_WRITTEN]
    return FIELD_SEPARATOR.join((_NAMES[type(record)], *map(_text, values))) + RECORD_SEPARATOR


def _text(value: object) -> str:
    if value is None:
        return _NOTHING
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, int) else str(value)


def keys_of(record: TraceRecord) -> Iterator[str]:
    """The keys to find a record by."""
    yield record.msg_id
    keys = getattr(record, "keys", None)
    if keys:
        yield from filter(None, keys.split(" "))


# Decoding.


def decode_records(body: bytes | str) -> list[TraceRecord]:
    """Decode the records in the body of a trace message."""
    text = body if isinstance(body, str) else body.decode("utf-8", "replace")
    found = []
    for part in text.split(RECORD_SEPARATOR):
        kind, *fields = part.split(FIELD_SEPARATOR)
        read = _READERS.get(kind)
        if read is None:
            continue
        try:
            found.append(read(fields))
        except (ValueError, IndexError):
            continue
    return found


def _optional(fields: Sequence[str], at: int) -> str | None:
    return fields[at] if at < len(fields) and fields[at] not in (_NOTHING, "") else None


def _is_true(text: str) -> bool:
    return text.lower() == "true"


def _read_sent(fields: Sequence[str]) -> Sent:
    has_offset_id = len(fields) > 12
    return Sent(
        timestamp_ms=long_of(fields[0]),
        region_id=fields[1],
        group=fields[2],
        topic=fields[3],
        msg_id=fields[4],
        tags=_optional(fields, 5),
        keys=_optional(fields, 6),
        store_host=fields[7],
        body_length=long_of(fields[8]),
        cost_ms=long_of(fields[9]),
        message_type=long_of(fields[10]),
        offset_msg_id=_optional(fields, 11) if has_offset_id else None,
        success=_is_true(fields[12] if has_offset_id else fields[11]),
        client_host=_optional(fields, 13),
    )


def _read_began(fields: Sequence[str]) -> ConsumeBegan:
    return ConsumeBegan(
        timestamp_ms=long_of(fields[0]),
        region_id=_optional(fields, 1),
        group=fields[2],
        request_id=fields[3],
        msg_id=fields[4],
        retry_times=long_of(fields[5]),
        keys=_optional(fields, 6),
    )


def _read_ended(fields: Sequence[str]) -> ConsumeEnded:
    code, timestamp_ms = _optional(fields, 5), _optional(fields, 6)
    success = _is_true(fields[3])
    unsaid = ConsumeOutcome.SUCCESS if success else ConsumeOutcome.FAILED
    return ConsumeEnded(
        request_id=fields[0],
        msg_id=fields[1],
        cost_ms=long_of(fields[2]),
        success=success,
        keys=_optional(fields, 4),
        outcome=unsaid if code is None else long_of(code),
        timestamp_ms=None if timestamp_ms is None else long_of(timestamp_ms),
        group=_optional(fields, 7),
    )


def _read_transaction(fields: Sequence[str]) -> TransactionEnded:
    return TransactionEnded(
        timestamp_ms=long_of(fields[0]),
        region_id=fields[1],
        group=fields[2],
        topic=fields[3],
        msg_id=fields[4],
        tags=_optional(fields, 5),
        keys=_optional(fields, 6),
        store_host=fields[7],
        message_type=long_of(fields[8]),
        transaction_id=_optional(fields, 9),
        state=fields[10],
        from_check=_is_true(fields[11]),
    )


def _read_recalled(fields: Sequence[str]) -> Recalled:
    return Recalled(
        timestamp_ms=long_of(fields[0]),
        region_id=fields[1],
        group=fields[2],
        topic=fields[3],
        msg_id=fields[4],
        success=_is_true(fields[5]),
    )


_READERS: Final[dict[str, Callable[[Sequence[str]], TraceRecord]]] = {
    "Pub": _read_sent,
    "SubBefore": _read_began,
    "SubAfter": _read_ended,
    "EndTransaction": _read_transaction,
    "Recall": _read_recalled,
}
