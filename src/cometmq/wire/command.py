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
from struct import Struct
from typing import Any, Final

import msgspec

from cometmq.model.errors import HeaderError
from cometmq.wire import fastjson
from cometmq.wire.codes import CURRENT as CURRENT_VERSION
from cometmq.wire.codes import LanguageCode
from cometmq.wire.frame import JSON, ROCKETMQ, Frame, pack_head
from cometmq.wire.header import H, Int32, decode_fields, decode_json_header, encode_fields, read_json_fields

RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2

MAX_HEADER_BYTES: Final = 256 * 1024
"""The largest header we read. The message properties, at most 32 KiB, are the largest thing in one."""

Body = bytes | bytearray | memoryview

_OUR_LANGUAGE: Final = "PYTHON"
_NO_FIELDS: Final = msgspec.Raw(b"null")


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
                received = _read_binary_fields(memoryview(received))
            self.received_fields = received
        return received

    def header(self, cls: type[H]) -> H:
        """The custom fields as their declared struct."""
        received = self.received_fields
        if self.serialize_type == JSON and received is not None and not isinstance(received, dict):
            return decode_json_header(cls, received)
        return decode_fields(cls, self.fields())


class _JsonHeader(msgspec.Struct, gc=False):
    opaque: Int32
    code: Int32 = 0
    flag: Int32 = 0
    version: Int32 = 0
    language: str | None = "JAVA"
    remark: str | None = None
    ext_fields: msgspec.Raw = msgspec.field(name="extFields", default=_NO_FIELDS)


_json_header: Final = msgspec.json.Decoder(_JsonHeader)


def decode_command(frame: Frame, max_header_bytes: int = MAX_HEADER_BYTES) -> Command:
    """Read the command in a frame."""
    serialize_type, raw, body = frame
    if len(raw) > max_header_bytes:
        raise HeaderError(f"a header of {len(raw)} bytes is over the limit of {max_header_bytes}")
    if serialize_type == JSON:
        try:
            header = _json_header.decode(raw)
        except msgspec.MsgspecError:
            header = _read_dialect(raw)
        except RecursionError:
            raise HeaderError("the header is nested too deeply") from None
        fields = None if header.ext_fields is _NO_FIELDS else header.ext_fields
        return Command(
            header.code,
            header.opaque,
            header.flag,
            header.version,
            header.language,
            header.remark,
            JSON,
            body,
            fields,
        )
    if serialize_type == ROCKETMQ:
        return _decode_binary(raw, body)
    raise HeaderError(f"serialize type {serialize_type} is neither JSON (0) nor ROCKETMQ (1)")


def _read_dialect(raw: memoryview) -> _JsonHeader:
    """A header in the dialect of JSON that Java's reader takes: see `fastjson`."""
    value = fastjson.loads(raw)
    if not isinstance(value, dict):
        raise HeaderError("the header is not a JSON object")
    members: dict[str, Any] = {}
    for key, item in value.items():
        name = _MEMBER_NAMES.get(str(key).lower())
        if name is not None and item is not None:
            members[name] = item
    if "language" in members:
        members["language"] = _language_name(members["language"])
    ext = members.pop("extFields", None)
    if ext is not None:
        if not isinstance(ext, dict):
            raise HeaderError("extFields is not an object")
        members["extFields"] = msgspec.Raw(fastjson.dumps({str(k): v for k, v in ext.items()}))
    try:
        return msgspec.convert(members, _JsonHeader, strict=False)
    except msgspec.ValidationError as error:
        raise HeaderError(f"the header cannot be read: {error}") from None
    except TypeError as error:
        raise HeaderError(f"extFields cannot be read: {error}") from None


_MEMBER_NAMES: Final = {
    name.lower(): name for name in ("code", "opaque", "flag", "version", "language", "remark", "extFields")
}


def _language_name(value: Any) -> str | None:
    if isinstance(value, int):
        return _LANGUAGE_NAMES.get(value)
    name = str(value).upper()
    return name if name in LanguageCode.__members__ else None


_LANGUAGE_NAMES: Final[dict[int, str]] = {code.value: code.name for code in LanguageCode}
_LANGUAGE_BYTES: Final[dict[str | None, int]] = {code.name: code.value for code in LanguageCode}

_BINARY_FIXED: Final = Struct(">hbhiii")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")


def _decode_binary(raw: memoryview, body: Body) -> Command:
    end = len(raw)
    if end < _BINARY_FIXED.size + _INT32.size:
        raise HeaderError(f"a binary header of {end} bytes is shorter than its fixed part")
    code, language, version, opaque, flag, remark_bytes = _BINARY_FIXED.unpack_from(raw)
    pos = _BINARY_FIXED.size
    remark = _text(raw, pos, remark_bytes, end - _INT32.size)
    pos += max(remark_bytes, 0)
    (fields_bytes,) = _INT32.unpack_from(raw, pos)
    pos += _INT32.size
    if fields_bytes > end - pos:
        raise HeaderError(f"a field block of {fields_bytes} bytes does not fit the header")
    fields = raw[pos : pos + fields_bytes] if fields_bytes > 0 else None
    return Command(code, opaque, flag, version, _LANGUAGE_NAMES.get(language), remark, ROCKETMQ, body, fields)


def _text(raw: memoryview, pos: int, size: int, end: int) -> str | None:
    if size <= 0:
        return None
    if pos + size > end:
        raise HeaderError(f"a text of {size} bytes at {pos} does not fit the header")
    try:
        return str(raw[pos : pos + size], "utf-8")
    except UnicodeDecodeError:
        raise HeaderError(f"the text at {pos} is not UTF-8") from None


def _read_binary_fields(raw: memoryview) -> dict[str, str | None]:
    fields: dict[str, str | None] = {}
    pos, end = 0, len(raw)
    while pos < end:
        if end - pos < _INT16.size:
            raise HeaderError("the field block ends inside a key length")
        (key_bytes,) = _INT16.unpack_from(raw, pos)
        pos += _INT16.size
        key = _text(raw, pos, key_bytes, end)
        pos += max(key_bytes, 0)
        if end - pos < _INT32.size:
            raise HeaderError("the field block ends inside a value length")
        (value_bytes,) = _INT32.unpack_from(raw, pos)
        pos += _INT32.size
        value = _text(raw, pos, value_bytes, end)
        pos += max(value_bytes, 0)
        if key is not None:
            fields[key] = value
    return fields


_OPAQUE: Final = re.compile(rb"opaque['\"]?\s*:\s*['\"]?(-?\d{1,10})")
NO_OPAQUE: Final = -1
"""The opaque of an answer to a request whose own could not be found; peers count from zero."""


def salvage_opaque(frame: Frame) -> int:
    """The opaque of a frame whose header cannot be read otherwise, or `NO_OPAQUE`."""
    raw = frame.header
    if frame.serialize_type == ROCKETMQ:
        return int(_INT32.unpack_from(raw, 5)[0]) if len(raw) >= 9 else NO_OPAQUE
    match = _OPAQUE.search(raw[:MAX_HEADER_BYTES])
    opaque = int(match.group(1)) if match is not None else NO_OPAQUE
    return opaque if -(2**31) <= opaque < 2**31 else NO_OPAQUE


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
        header = _binary_bytes(code, opaque, flag, fields, remark, version, language)
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
        header = _binary_bytes(code, opaque, RESPONSE_FLAG, fields, remark, CURRENT_VERSION, _OUR_LANGUAGE)
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
        parts.append(b',"extFields":%b' % msgspec.json.encode(fields))
    parts.append(b',"flag":%d,"language":"%b","opaque":%d' % (flag, (language or "OTHER").encode(), opaque))
    if remark is not None:
        parts.append(b',"remark":%b' % msgspec.json.encode(remark))
    parts.append(b',"serializeTypeCurrentRPC":"JSON","version":%d}' % version)
    return b"".join(parts)


def _binary_bytes(
    code: int,
    opaque: int,
    flag: int,
    fields: Mapping[str, str | None] | None,
    remark: str | None,
    version: int,
    language: str | None,
) -> bytes:
    text = (remark or "").encode()
    block = bytearray()
    for key, value in (fields or {}).items():
        key_text, value_text = key.encode(), (value or "").encode()  # the layout's null is the empty text
        block += _INT16.pack(len(key_text))
        block += key_text
        block += _INT32.pack(len(value_text))
        block += value_text
    short_code = (code + 0x8000 & 0xFFFF) - 0x8000  # the layout has 16 bits for it; Java cuts the rest too
    fixed = _BINARY_FIXED.pack(
        short_code, _LANGUAGE_BYTES.get(language, LanguageCode.OTHER), version, opaque, flag, len(text)
    )
    return b"".join((fixed, text, _INT32.pack(len(block)), block))


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
    "salvage_opaque",
]
