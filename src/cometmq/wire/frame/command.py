"""Commands: requests and answers, which share one form in two header encodings.

Rules kept here:
- Decoding reads the fixed part of the header at once and leaves the custom fields as received until a handler
  asks for its declared header, so that a signature can be checked against the received text.
- The frame's own serialize type decides how it is read; an answer goes out in the type of its request.
- A header that cannot be read raises `HeaderError` and nothing else; the frame around it is still sound, so
  the connection is too. `salvage_opaque` then finds whom to tell.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import index
from typing import Any, Final

import msgspec

from cometmq.model.errors import HeaderError
from cometmq.wire.codes import CURRENT as CURRENT_VERSION
from cometmq.wire.frame.framing import JSON, ROCKETMQ, Frame, pack_head
from cometmq.wire.header.binary import binary_header_bytes, read_binary_fields, read_binary_header
from cometmq.wire.header.json import (
    LANGUAGE_BYTES,
    NO_FIELDS,
    language_name,
    read_json_header,
)
from cometmq.wire.header.schema import (
    Fields,
    H,
    Header,
    decode_fields,
    decode_json_header,
    encode_fields,
    json_fields,
    read_json_fields,
)
from cometmq.wire.json import fastjson

RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2

MAX_HEADER_BYTES: Final = 256 * 1024
"""The largest request header that is read. The message properties, at most 32 KiB, are its largest field."""
MAX_ANSWER_HEADER_BYTES: Final = 2**24 - 1
"""The largest answer header, the maximum of a frame. The answer to a batch of 4 MiB has one of 6 MiB."""

Body = bytes | bytearray | memoryview
Payload = Body | Sequence[Body]
"""A body to be written: one buffer, or chunks that need not be joined first."""

_OUR_LANGUAGE: Final = "PYTHON"


class Command(msgspec.Struct, gc=False):
    """One decoded frame."""

    code: int
    opaque: int
    flag: int
    version: int
    language: str | None
    remark: str | None
    serialize_type: int
    body: Body
    received_fields: msgspec.Raw | bytes | memoryview | dict[str, str | None] | None = None
    """The custom fields as received: JSON text or whole header, binary block, or a map already read."""
    typed: Header | None = None
    """The custom fields as their declared struct, if the one-pass reader read them."""
    started_s: float = 0.0
    """When the handler was called, if the answer is deferred."""
    is_held: bool = False
    """Whether the request waits for a message."""

    def fields(self) -> dict[str, str | None]:
        """Returns the custom fields as text, in received order."""
        received = self.received_fields
        if not isinstance(received, dict):
            if received is None:
                return {}
            if self.serialize_type == ROCKETMQ:
                assert not isinstance(received, msgspec.Raw)
                received = read_binary_fields(received)
            elif isinstance(received, bytes):
                received = read_json_fields(read_json_header(received).ext_fields)
            else:
                received = read_json_fields(received)
            self.received_fields = received
        return received

    def header(self, cls: type[H]) -> H:
        """Returns the custom fields as their declared struct."""
        typed = self.typed
        if typed.__class__ is cls:
            return typed
        received = self.received_fields
        if isinstance(received, msgspec.Raw):
            return decode_json_header(cls, received)
        return decode_fields(cls, self.fields())


def decode_command(frame: Frame, max_header_bytes: int = MAX_HEADER_BYTES) -> Command:
    refuse_long_header(frame, max_header_bytes)
    serialize_type, raw, body = frame
    if serialize_type == JSON:
        header = read_json_header(raw)
        language = header.language
        fields = header.ext_fields
        return Command(
            header.code,
            header.opaque,
            header.flag,
            header.version,
            language if language in LANGUAGE_BYTES else language_name(language),
            header.remark,
            JSON,
            body,
            None if fields is NO_FIELDS else fields,
        )
    if serialize_type == ROCKETMQ:
        code, opaque, flag, version, language, remark, block = read_binary_header(raw)
        return Command(code, opaque, flag, version, language, remark, ROCKETMQ, body, block)
    raise HeaderError(f"serialize type {serialize_type} is neither JSON (0) nor ROCKETMQ (1)")


def refuse_long_header(frame: Frame, max_header_bytes: int) -> None:
    """Raise `HeaderError` for a header that is not read."""
    if len(frame.header) > max_header_bytes:
        raise HeaderError(f"a header of {len(frame.header)} bytes is over the limit of {max_header_bytes}")


def payload_bytes(payload: Payload) -> int:
    if isinstance(payload, bytes | bytearray | memoryview):
        return len(payload)
    return sum(map(len, payload))


_OPAQUE: Final = (
    re.compile(rb'"opaque"\s*:\s*"?(-?\d{1,10})'),  # cannot stand inside a text, where quotes are escaped
    re.compile(rb"opaque['\"]?\s*:\s*['\"]?(-?\d{1,10})", re.IGNORECASE),
)
_FLAG: Final = (
    re.compile(rb'"flag"\s*:\s*"?(-?\d{1,10})'),
    re.compile(rb"flag['\"]?\s*:\s*['\"]?(-?\d{1,10})", re.IGNORECASE),
)
NO_OPAQUE: Final = -1
"""The opaque of an answer to an unreadable request; peers count from zero."""


def salvage_opaque(frame: Frame) -> int:
    """Returns the opaque of a frame with an unreadable header, or `NO_OPAQUE`."""
    return _salvage(frame, 5, _OPAQUE, NO_OPAQUE)


def salvage_flag(frame: Frame) -> int:
    """Returns the flag of a frame with an unreadable header, or that of a request."""
    return _salvage(frame, 9, _FLAG, 0)


def _salvage(frame: Frame, binary_offset: int, patterns: Sequence[re.Pattern[bytes]], default: int) -> int:
    raw = frame.header
    if frame.serialize_type == ROCKETMQ:
        text = raw[binary_offset : binary_offset + 4]
        return int.from_bytes(text, "big", signed=True) if len(text) == 4 else default
    for match in (pattern.search(raw) for pattern in patterns):
        if match is not None:
            number = int(match.group(1))
            return number if -(2**31) <= number < 2**31 else default
    return default


def encode_command(
    code: int,
    opaque: int,
    flag: int,
    fields: Fields | None = None,
    *,
    body: Body = b"",
    remark: str | None = None,
    version: int = CURRENT_VERSION,
    language: str | None = _OUR_LANGUAGE,
    serialize_type: int = JSON,
) -> bytes:
    """Returns a command as a whole frame."""
    encode = _json_header if serialize_type == JSON else _binary_header
    head = pack_head(serialize_type, encode(code, opaque, flag, fields, remark, version, language), len(body))
    return b"".join((head, body)) if body else head


def encode_request_head(
    code: int,
    opaque: int,
    flag: int = 0,
    fields: Fields | None = None,
    body_bytes: int = 0,
    serialize_type: int = JSON,
) -> bytes:
    """Returns the frame of a request up to its body, which is sent without a copy."""
    encode = _json_header if serialize_type == JSON else _binary_header
    return pack_head(serialize_type, encode(code, opaque, flag, fields), body_bytes)


def encode_response_head(
    opaque: int,
    code: int = 0,
    fields: Fields | None = None,
    body_bytes: int = 0,
    remark: str | None = None,
    serialize_type: int = JSON,
) -> bytes:
    """Returns the frame of an answer up to its body, which is sent without a copy."""
    if code == 0 and fields is None and remark is None and serialize_type == JSON:
        return pack_head(JSON, _SUCCESS % opaque, body_bytes)
    encode = _json_header if serialize_type == JSON else _binary_header
    return pack_head(serialize_type, encode(code, opaque, RESPONSE_FLAG, fields, remark), body_bytes)


class _WrittenHeader(msgspec.Struct, gc=False):
    """The members of a JSON header in Java's order; unset ones are left out."""

    code: int
    ext_fields: Any = msgspec.field(name="extFields")
    flag: int
    language: str
    opaque: int
    remark: str | msgspec.UnsetType
    serialize_type: str = msgspec.field(name="serializeTypeCurrentRPC")
    version: int


_write: Final = msgspec.json.Encoder().encode


def _json_header(
    code: int,
    opaque: int,
    flag: int,
    fields: Fields | None,
    remark: str | None = None,
    version: int = CURRENT_VERSION,
    language: str | None = _OUR_LANGUAGE,
) -> bytes:
    header = _WrittenHeader(
        code if code.__class__ is int else index(code),  # a handler's mistake does not go to the peer
        msgspec.UNSET if fields is None else json_fields(fields),
        flag,
        language or "OTHER",
        opaque,
        msgspec.UNSET if remark is None else remark,
        "JSON",
        version,
    )
    try:
        return _write(header)
    except UnicodeEncodeError:  # a lone surrogate, for which Java sends a question mark
        return fastjson.dumps(msgspec.to_builtins(header))


_SUCCESS: Final = _json_header(0, 0, RESPONSE_FLAG, None).replace(b'"opaque":0', b'"opaque":%d')
"""The header of a plain success."""


def _binary_header(
    code: int,
    opaque: int,
    flag: int,
    fields: Fields | None,
    remark: str | None = None,
    version: int = CURRENT_VERSION,
    language: str | None = _OUR_LANGUAGE,
) -> bytes:
    table = encode_fields(fields) if isinstance(fields, Header) else fields
    return binary_header_bytes(code, opaque, flag, table, remark, version, language)
