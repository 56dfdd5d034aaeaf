"""JSON table files in the form of RocketMQ's Java side: written byte for byte, read into structs.

Rules kept here:
- A struct is a Java bean: members in alphabetical order, without those that are None. A dict keeps its order.
- Indentation is Java's: a member with a name takes a line of its own, one with a number as its name does not;
  items of a list do, items of a tuple, which stands for Java's sets and arrays, do not.
- Files that Java wrote are read fast, whatever their size. Everything else that Java's reader accepts goes
  through the slower tolerant reader; an unreadable file raises `HeaderError`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Final, TypeVar

import msgspec

from cometmq.model.errors import HeaderError
from cometmq.wire.json import fastjson
from cometmq.wire.json.writer import dumps

T = TypeVar("T")

_PLAIN: Final = re.compile(r"[ !#-\[\]-~]*")
_BARE_KEY: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|([{,]\s*)(-?[0-9]+)(\s*:)', re.DOTALL)


def dumps_table(value: object, *, pretty: bool = True) -> bytes:
    """Write structs, dicts, lists, tuples, strings, numbers and booleans as Java would."""
    parts: list[str] = []
    _write(value, parts, "\n" if pretty else "")
    return "".join(parts).encode()


def loads_table(kind: type[T], data: bytes) -> T:
    """Read a text into a struct; unknown members are skipped."""
    if b'"$ref"' not in data:
        try:
            return msgspec.json.decode(_BARE_KEY.sub(_quote_key, data), type=kind)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            pass
    try:
        return msgspec.convert(
            _without_nulls(fastjson.loads(data, max_chars=fastjson.MAX_FILE_CHARS)), kind, strict=False
        )
    except (msgspec.ValidationError, RecursionError) as error:
        raise HeaderError(f"JSON: {error}") from None


def _quote_key(match: re.Match[bytes]) -> bytes:
    before, key, after = match.groups()
    return match.group() if key is None else b'%b"%b"%b' % (before, key, after)


def _without_nulls(value: object) -> object:
    """Drop null members, so that they get their defaults."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _write(value: object, parts: list[str], line: str) -> None:
    """`line` begins a line at the depth of the value: a line feed and tabs, or nothing."""
    if isinstance(value, str):
        parts.append(_text(value))
    elif isinstance(value, msgspec.Struct):
        _write_bean(value, parts, line)
    elif isinstance(value, Mapping):
        _write_map(value, parts, line)
    elif isinstance(value, list):
        _write_list(value, parts, line)
    elif isinstance(value, tuple):
        _write_items(value, parts, line, ",")
    elif type(value) is int:
        parts.append(str(value))
    else:
        parts.append(dumps(value).decode())


def _write_bean(value: msgspec.Struct, parts: list[str], line: str) -> None:
    inner = line and line + "\t"
    parts.append("{" + inner)
    separator = ""
    for head, member in _members(type(value)):
        item = member(value)
        if item is not None:
            parts.append(separator + head)
            _write(item, parts, inner)
            separator = "," + inner
    parts.append(line + "}")


@cache
def _members(kind: type[msgspec.Struct]) -> list[tuple[str, attrgetter[object]]]:
    """Returns the name and the getter of each member, in Java's order."""
    names = sorted(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
    return [(_text(name) + ":", attrgetter(field)) for name, field in names]


def _write_map(value: Mapping[str | int, object], parts: list[str], line: str) -> None:
    if {*map(type, value)} == {*map(type, value.values())} == {int}:  # offsets by queue: the bulk of all
        parts.append("{" + ",".join([f"{key}:{item}" for key, item in value.items()]) + line + "}")
        return
    inner = line and line + "\t"
    separator = "{"
    for key, item in value.items():
        if item is not None:
            head = f"{inner}{_text(key)}" if isinstance(key, str) else str(key)
            parts.append(f"{separator}{head}:")
            _write(item, parts, inner)
            separator = ","
    if separator == "{":
        parts.append("{")
    parts.append(line + "}" if value else "}")


def _write_list(value: Sequence[object], parts: list[str], line: str) -> None:
    inner = line and line + "\t"
    _write_items(value, parts, inner, "," + inner, inner, line)


def _write_items(
    value: Sequence[object], parts: list[str], line: str, separator: str, begin: str = "", end: str = ""
) -> None:
    if not value:
        parts.append("[]")
        return
    parts.append("[" + begin)
    for index, item in enumerate(value):
        if index:
            parts.append(separator)
        _write(item, parts, line)
    parts.append(end + "]")


def _text(value: str) -> str:
    return f'"{value}"' if _PLAIN.fullmatch(value) else dumps(value).decode()
