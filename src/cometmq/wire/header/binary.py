"""Headers in RocketMQ's binary layout.

    code (2) | language (1) | version (2) | opaque (4) | flag (4)
    remark length (4) | remark | block length (4) | block of: key length (2) | key | value length (4) | value

Rules kept here: the layout has 16 bits for the code, and a larger one is cut, as Java does; an empty text and
no text are the same; a length that does not fit raises `HeaderError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812 -- it is a class
from typing import Final

from cometmq.model.errors import HeaderError
from cometmq.wire.codes import LanguageCode
from cometmq.wire.header.json import LANGUAGE_BYTES, LANGUAGE_NAMES

_FIXED: Final = Struct(">hbhiii")
_FIXED_WITHOUT_REMARK: Final = Struct(">hbhiiii")  # with the length of the block
_INT16: Final = Struct(">h")
_MAX_KEY_BYTES: Final = 2**15 - 1
_INT32: Final = Struct(">i")
_length_at: Final = Struct(">I").unpack_from

Bytes = bytes | memoryview
BinaryHeader = tuple[int, int, int, int, str | None, str | None, Bytes | None]
"""Code, opaque, flag, version, language, remark and the block of custom fields as it came."""


def read_binary_header(raw: Bytes) -> BinaryHeader:
    """Read the fixed part of a header."""
    end = len(raw)
    pos = _FIXED_WITHOUT_REMARK.size
    if end < pos:
        raise HeaderError(f"a binary header of {end} bytes is shorter than its fixed part")
    code, language, version, opaque, flag, remark_bytes, fields_bytes = _FIXED_WITHOUT_REMARK.unpack_from(raw)
    remark = None
    if remark_bytes > 0:
        remark = _text(raw, _FIXED.size, remark_bytes, end - _INT32.size)
        (fields_bytes,) = _INT32.unpack_from(raw, _FIXED.size + remark_bytes)
        pos += remark_bytes
    if fields_bytes > end - pos:
        raise HeaderError(f"a field block of {fields_bytes} bytes does not fit the header")
    fields = raw[pos : pos + fields_bytes] if fields_bytes > 0 else None
    return code, opaque, flag, version, LANGUAGE_NAMES.get(language), remark, fields


def _text(raw: Bytes, pos: int, size: int, end: int) -> str:
    if pos + size > end:
        raise HeaderError(f"a text of {size} bytes at {pos} does not fit the header")
    try:
        return str(raw[pos : pos + size], "utf-8")
    except UnicodeDecodeError:
        raise HeaderError(f"the text at {pos} is not UTF-8") from None


def read_binary_fields(raw: Bytes) -> dict[str, str | None]:
    """The custom fields in their block; where a key stands twice, the last one counts."""
    data = bytes(raw)  # at most a copy of a small block: slices of bytes cost a fraction of slices of a view
    fields: dict[str, str | None] = {}
    start = pos = 0
    end = len(data)
    try:
        while pos < end:
            start = pos
            key_at = pos + 2
            key_end = key_at + (data[pos] << 8 | data[pos + 1])
            (size,) = _length_at(data, key_end)
            pos = key_end + 4 + size
            if pos > end:
                raise HeaderError(f"the field at {start} does not fit the field block of {end} bytes")
            if key_end > key_at:
                fields[data[key_at:key_end].decode()] = data[key_end + 4 : pos].decode() or None
    except (IndexError, StructError):
        raise HeaderError(f"the field at {start} ends inside a length") from None
    except UnicodeDecodeError:
        raise HeaderError(f"the field at {start} is not UTF-8") from None
    return fields


def binary_header_bytes(
    code: int,
    opaque: int,
    flag: int,
    fields: Mapping[str, str | None] | None,
    remark: str | None,
    version: int,
    language: str | None,
) -> bytes:
    """A header in the binary layout."""
    short_code = (code + 0x8000 & 0xFFFF) - 0x8000  # the layout has 16 bits for it; Java cuts the rest too
    language_byte = LANGUAGE_BYTES.get(language, LanguageCode.OTHER)
    if not fields and not remark:
        return _FIXED_WITHOUT_REMARK.pack(short_code, language_byte, version, opaque, flag, 0, 0)
    text = (remark or "").encode(errors="replace")
    parts: list[bytes] = []
    for key, value in (fields or {}).items():
        value_text = (value or "").encode(errors="replace")  # the layout's null is the empty text
        parts += (_key_block(key), _INT32.pack(len(value_text)), value_text)
    block = b"".join(parts)
    fixed = _FIXED.pack(short_code, language_byte, version, opaque, flag, len(text))
    return b"".join((fixed, text, _INT32.pack(len(block)), block))


@lru_cache(maxsize=1024)
def _key_block(key: str) -> bytes:
    text = key.encode(errors="replace")
    if len(text) > _MAX_KEY_BYTES:
        raise HeaderError(f"a field name of {len(text)} bytes does not fit a binary header")
    return _INT16.pack(len(text)) + text
