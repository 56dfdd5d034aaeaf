"""JSON headers: the plain form in one pass, and every other form that Java's reader accepts.

Every known client writes the plain form: the eight known members in Java's spelling. Java also accepts
unknown members, names in another case, numbers as texts, missing quotes, stray commas, and the rest of the
dialect of `fastjson`.

Rules kept here: both ways of reading have the same result. An unreadable header raises `HeaderError`, nothing
else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cometmq.model.errors import HeaderError
from cometmq.wire.codes import LanguageCode
from cometmq.wire.header.schema import Int32
from cometmq.wire.json import fastjson

NO_FIELDS: Final = msgspec.Raw(b"null")

LANGUAGE_NAMES: Final[dict[int, str]] = {code.value: code.name for code in LanguageCode}
LANGUAGE_BYTES: Final[dict[str | None, int]] = {code.name: code.value for code in LanguageCode}


class JsonHeader(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The members of a header."""

    opaque: Int32
    code: Int32 = 0
    flag: Int32 = 0
    version: Int32 = 0
    language: str | None = "JAVA"
    remark: str | None = None
    ext_fields: msgspec.Raw = msgspec.field(name="extFields", default=NO_FIELDS)
    """As received; read on demand."""
    serialize_type: str | None = msgspec.field(name="serializeTypeCurrentRPC", default=None)
    """Repeats the frame; not read."""


REFUSED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Exceptions of a decoder that refuses its input."""

_plain: Final = msgspec.json.Decoder(JsonHeader).decode
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_json_header(raw: bytes | memoryview) -> JsonHeader:
    try:
        return _plain(raw)
    except REFUSED:
        return _read_other_form(raw)


def _read_other_form(raw: bytes | memoryview) -> JsonHeader:
    members: Mapping[Any, Any]
    try:
        members = _members.decode(raw)
    except REFUSED:
        members = fastjson.loads(raw, literal_numbers=True)
        if not isinstance(members, dict):
            raise HeaderError("the header is not a JSON object") from None
    known: dict[str, Any] = {}
    for key, value in members.items():
        name = _MEMBER_NAMES.get(str(key).lower().replace("_", "").replace("-", ""))
        if name == "extFields":
            known[name] = _custom_fields(value)
        elif name is not None:
            known[name] = _plain_value(value)
    opaque = _int32(known, "opaque")
    if opaque is None:
        raise HeaderError("the header has no opaque, so that it cannot be answered")
    return JsonHeader(
        opaque,
        _int32(known, "code") or 0,
        _int32(known, "flag") or 0,
        _int32(known, "version") or 0,
        language_name(known["language"]) if "language" in known else "JAVA",
        _text(known.get("remark")),
        known.get("extFields", NO_FIELDS),
    )


_MEMBER_NAMES: Final = {
    name.lower(): name for name in ("code", "opaque", "flag", "version", "language", "remark", "extFields")
}


def _plain_value(value: Any) -> Any:
    return fastjson.loads(value, literal_numbers=True) if isinstance(value, msgspec.Raw) else value


def _text(value: Any) -> str | None:
    """Returns a value as Java's text of it."""
    if value is None:
        return None
    return str(value) if isinstance(value, str) else fastjson.dumps(value).decode()


def _custom_fields(value: Any) -> msgspec.Raw:
    if isinstance(value, msgspec.Raw):
        if bytes(memoryview(value)[:1]) == b"{":
            return value
        value = _plain_value(value)
    if value is None or value == "":
        return NO_FIELDS
    if not isinstance(value, dict):
        raise HeaderError("extFields is not an object")
    if any(isinstance(key, tuple) for key in value):
        raise HeaderError("extFields has an object as a key")
    return msgspec.Raw(fastjson.dumps({str(key): _text(item) for key, item in value.items()}))


_WHOLE = re.compile(r"[-+]?\d{1,20}(?:\.0*)?")
_INT32_VALUES: Final = range(-(2**31), 2**31)


def _int32(members: Mapping[str, Any], name: str) -> int | None:
    value = members.get(name)
    if value is None or value in ("", "null"):
        return None
    number: int | None = None
    if isinstance(value, bool):
        number = int(value)
    elif isinstance(value, str) and _WHOLE.fullmatch(value):
        number = int(value.partition(".")[0])
    elif isinstance(value, fastjson.Literal) and abs(float(value)) < 2**32:
        number = int(float(value))  # Java cuts the fraction off a number, not off a text
    if number is None or number not in _INT32_VALUES:
        raise HeaderError(f"the header's {name} is not a 32-bit integer: {str(value)[:40]}")
    return number


def language_name(value: Any) -> str | None:
    """Returns the name of a language, given by its name in any case or by its number."""
    if isinstance(value, fastjson.Literal):
        return LANGUAGE_NAMES.get(int(value)) if value.isdecimal() else None
    name = value.upper() if isinstance(value, str) else None
    return name if name in LANGUAGE_BYTES else None
