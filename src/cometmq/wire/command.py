"""Commands: what a frame says. Requests and answers share one form, in two header encodings.

Rules kept here:
- Decoding reads the fixed part of the header at once and leaves the custom fields as received; they are read
  when a handler asks for its declared header, and a signature can be checked against the received text.
- The frame's own serialize type decides how it is read; an answer goes out in the type of its request.
- A header that cannot be read raises `HeaderError` and nothing else; the frame around it is still sound, so
  the connection is too. `salvage_opaque` then finds whom to tell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from cometmq.model.errors import HeaderError
from cometmq.wire import fastjson
from cometmq.wire.binary_header import binary_header_bytes, read_binary_fields, read_binary_header
from cometmq.wire.codes import CURRENT as CURRENT_VERSION
from cometmq.wire.frame import JSON, ROCKETMQ, Frame, pack_head
from cometmq.wire.header import H, decode_fields, decode_json_header, encode_fields, read_json_fields
from cometmq.wire.json_header import (
    LANGUAGE_BYTES,
    NO_FIELDS,
    REFUSED,
    decode_plain,
    language_name,
    read_other_form,
)

RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2

MAX_HEADER_BYTES: Final = 256 * 1024
"""The largest header we read. The message properties, at most 32 KiB, are the largest thing in one."""

Body = bytes | bytearray | memoryview

_OUR_LANGUAGE: Final = "PYTHON"


class Command(msgspec.Struct):
    """One decoded frame."""

    code: int
    opaque: int
    flag: int
    version: int
    language: str | None
    remark: str | None
    serialize_type: int
    body: Body
    received_fields: msgspec.Raw | memoryview | dict[str, str | None] | None = None
    """The custom fields as they came: JSON text, the binary block, or a map already read."""

    @property
    def is_response(self) -> bool:
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & ONEWAY_FLAG != 0

    def fields(self) -> dict[str, str | None]:
        """The custom fields as text, in the order in which they came."""
        received = self.received_fields
        if not isinstance(received, dict):
            if received is None:
                return {}
            if self.serialize_type == JSON:
                received = read_json_fields(received)
            else:
                received = read_binary_fields(memoryview(received))
            self.received_fields = received
        return received

    def header(self, cls: type[H]) -> H:
        """The custom fields as their declared struct."""
        received = self.received_fields
        if self.serialize_type == JSON and received is not None and not isinstance(received, dict):
            return decode_json_header(cls, received)
        return decode_fields(cls, self.fields())


def decode_command(frame: Frame, max_header_bytes: int = MAX_HEADER_BYTES) -> Command:
    """Read the command in a frame."""
    serialize_type, raw, body = frame
    if len(raw) > max_header_bytes:
        raise HeaderError(f"a header of {len(raw)} bytes is over the limit of {max_header_bytes}")
    if serialize_type == JSON:
        try:
            header = decode_plain(raw)
        except REFUSED:
            header = read_other_form(raw)
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


_OPAQUE: Final = re.compile(rb"opaque['\"]?\s*:\s*['\"]?(-?\d{1,10})", re.IGNORECASE)
_FLAG: Final = re.compile(rb"flag['\"]?\s*:\s*['\"]?(-?\d{1,10})", re.IGNORECASE)
NO_OPAQUE: Final = -1
"""The opaque of an answer to a request whose own could not be found; peers count from zero."""


def salvage_opaque(frame: Frame) -> int:
    """The opaque of a frame whose header cannot be read otherwise, or `NO_OPAQUE`."""
    return _salvage(frame, 5, _OPAQUE, NO_OPAQUE)


def salvage_flag(frame: Frame) -> int:
    """The flag of a frame whose header cannot be read otherwise, or that of a request."""
    return _salvage(frame, 9, _FLAG, 0)


def _salvage(frame: Frame, binary_offset: int, pattern: re.Pattern[bytes], default: int) -> int:
    raw = frame.header
    if frame.serialize_type == ROCKETMQ:
        text = raw[binary_offset : binary_offset + 4]
        return int.from_bytes(text, "big", signed=True) if len(text) == 4 else default
    match = pattern.search(raw[:MAX_HEADER_BYTES])
    number = int(match.group(1)) if match is not None else default
    return number if -(2**31) <= number < 2**31 else default


def encode_command(
    code: int,
    opaque: int,
    flag: int,
    fields: Mapping[str, str | None] | None = None,
    *,
    body: Body = b"",
    remark: str | None = None,
    version: int = CURRENT_VERSION,
    language: str | None = _OUR_LANGUAGE,
    serialize_type: int = JSON,
) -> bytes:
    """One command as a whole frame."""
    if serialize_type == JSON:
        header = _json_bytes(code, opaque, flag, fields, remark, version, language)
    else:
        header = binary_header_bytes(code, opaque, flag, fields, remark, version, language)
    head = pack_head(serialize_type, header, len(body))
    return b"".join((head, body)) if body else head


def encode_response_head(
    opaque: int,
    code: int = 0,
    fields: Mapping[str, str | None] | None = None,
    *,
    body_bytes: int = 0,
    remark: str | None = None,
    serialize_type: int = JSON,
) -> bytes:
    """The frame of an answer up to its body, so that a large body goes out without a copy."""
    if serialize_type == JSON:
        if fields is None and remark is None:
            header = b"%b%d%b%d%b" % (_PLAIN_HEAD, code, _PLAIN_MIDDLE, opaque, _PLAIN_TAIL)
        else:
            header = _json_bytes(code, opaque, RESPONSE_FLAG, fields, remark, CURRENT_VERSION, _OUR_LANGUAGE)
    else:
        header = binary_header_bytes(
            code, opaque, RESPONSE_FLAG, fields, remark, CURRENT_VERSION, _OUR_LANGUAGE
        )
    return pack_head(serialize_type, header, body_bytes)


_PLAIN_HEAD: Final = b'{"code":'
_PLAIN_MIDDLE: Final = b',"flag":1,"language":"%b","opaque":' % _OUR_LANGUAGE.encode()
_PLAIN_TAIL: Final = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % CURRENT_VERSION


def _json_bytes(
    code: int,
    opaque: int,
    flag: int,
    fields: Mapping[str, str | None] | None,
    remark: str | None,
    version: int,
    language: str | None,
) -> bytes:
    parts = [b'{"code":%d' % code]
    if fields is not None:
        parts.append(b',"extFields":%b' % _json(fields))
    parts.append(b',"flag":%d,"language":"%b","opaque":%d' % (flag, (language or "OTHER").encode(), opaque))
    if remark is not None:
        parts.append(b',"remark":%b' % _json(remark))
    parts.append(b',"serializeTypeCurrentRPC":"JSON","version":%d}' % version)
    return b"".join(parts)


def _json(value: str | Mapping[str, str | None]) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a lone surrogate, for which Java sends a question mark
        return fastjson.dumps(value)


__all__ = [
    "MAX_HEADER_BYTES",
    "NO_OPAQUE",
    "ONEWAY_FLAG",
    "RESPONSE_FLAG",
    "Body",
    "Command",
    "decode_command",
    "encode_command",
    "encode_fields",
    "encode_response_head",
    "salvage_flag",
    "salvage_opaque",
]
