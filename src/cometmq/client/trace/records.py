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
from typing import Final, NamedTuple, get_args

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


class _ProducerRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The first fields of the records of a producer."""

    timestamp_ms: int
    region_id: str
    group: str
    topic: str
    msg_id: str


class RecallTrace(_ProducerRecord, frozen=True, kw_only=True, gc=False):
    """A delayed message was recalled (`Recall`)."""

    success: bool


class _MessageRecord(_ProducerRecord, frozen=True, kw_only=True, gc=False):
    tags: str | None
    keys: str | None
    store_host: str


class SendTrace(_MessageRecord, frozen=True, kw_only=True, gc=False):
    """A message was sent (`Pub`)."""

    body_length: int
    cost_ms: int
    message_type: int
    offset_msg_id: str | None
    success: bool
    client_host: str | None = None


class TransactionTrace(_MessageRecord, frozen=True, kw_only=True, gc=False):
    """A producer told the broker how a transaction ended (`EndTransaction`)."""

    message_type: int
    transaction_id: str | None
    state: str
    from_check: bool


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


TraceRecord = SendTrace | ConsumeBegan | ConsumeEnded | TransactionTrace | RecallTrace

_NAMES: Final[dict[type[TraceRecord], str]] = {
    SendTrace: "Pub",
    ConsumeBegan: "SubBefore",
    ConsumeEnded: "SubAfter",
    TransactionTrace: "EndTransaction",
    RecallTrace: "Recall",
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

_CONVERTERS: Final[dict[object, Callable[[str], object]]] = {
    int: long_of,
    str: str,
    bool: lambda text: text.lower() == "true",
}


class _Field(NamedTuple):
    name: str
    convert: Callable[[str], object]
    optional: bool


def _fields_of(record: type[TraceRecord]) -> list[_Field]:
    fields = []
    for field in msgspec.structs.fields(record):
        value_type, *none = get_args(field.type) or (field.type,)
        fields.append(_Field(field.name, _CONVERTERS[value_type], bool(none)))
    return fields


_RECORDS: Final = {name: (record, _fields_of(record)) for record, name in _NAMES.items()}


def decode_records(body: bytes | str) -> list[TraceRecord]:
    """Decode the records in the body of a trace message."""
    text = body if isinstance(body, str) else body.decode("utf-8", "replace")
    found = []
    for part in text.split(RECORD_SEPARATOR):
        name, *texts = part.split(FIELD_SEPARATOR)
        if name in _RECORDS:
            try:
                found.append(_decode(*_RECORDS[name], texts))
            except (ValueError, IndexError):
                continue
    return found


def _decode(record: type[TraceRecord], fields: list[_Field], texts: list[str]) -> TraceRecord:
    if record is SendTrace and len(texts) <= 12:  # an older client: no offset id before the success
        texts.insert(11, _NOTHING)
    elif record is ConsumeEnded and _is_missing(texts, 5):
        outcome = ConsumeOutcome.SUCCESS if texts[3].lower() == "true" else ConsumeOutcome.FAILED
        texts += [_NOTHING] * (6 - len(texts))
        texts[5] = str(outcome.value)
    values = {
        name: None if optional and _is_missing(texts, at) else convert(texts[at])
        for at, (name, convert, optional) in enumerate(fields)
    }
    return record(**values)  # type: ignore[arg-type]


def _is_missing(texts: Sequence[str], at: int) -> bool:
    return at >= len(texts) or texts[at] in (_NOTHING, "")
