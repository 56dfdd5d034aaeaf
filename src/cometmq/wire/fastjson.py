"""JSON as RocketMQ's Java side reads and writes it, which is not quite JSON.

Reading accepts what Java's reader accepts: keys without quotes, numbers and whole objects as keys, single
quotes, trailing commas, and `$ref` back references. Writing gives Java's own form: members sorted by the
caller, keys that are not strings bare; or, with `browser_compatible`, standard JSON with every
non-ASCII character and every slash escaped.

Rules kept here: nesting and input are bounded (`max_depth`; the caller bounds the length), and everything
that cannot be read raises `HeaderError` with the position.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from cometmq.model.errors import HeaderError

MAX_DEPTH: Final = 64

BeanKey = tuple[tuple[str, Any], ...]
"""An object used as a map key: its members as sorted pairs, so that it can be a key in Python too."""

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")
_WORD = re.compile(r"[A-Za-z_$.][\w$.@%+-]*")
_PLAIN = re.compile(r"[^\\\"\x00-\x1f]*")
_PLAIN_SINGLE = re.compile(r"[^\\'\x00-\x1f]*")
_ESCAPES: Final = {
    "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0",
    '"': '"', "'": "'", "\\": "\\", "/": "/",
}  # fmt: skip
_WORDS: Final = {"true": True, "false": False, "null": None, "NaN": None, "undefined": None}
_REF_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def loads(text: str | bytes | bytearray | memoryview, *, max_depth: int = MAX_DEPTH) -> Any:
    """Read one value; standard JSON takes the fast way, the dialect the tolerant one."""
    if not isinstance(text, str):
        try:
            text = str(text, "utf-8")
        except UnicodeDecodeError as error:
            raise HeaderError(f"JSON that is not UTF-8: {error.reason} at byte {error.start}") from None
    if '"$ref"' not in text:
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            pass
    reader = _Reader(text, max_depth)
    value = reader.value(0)
    reader.skip_space()
    if reader.pos != len(text):
        raise reader.error("end of text")
    return _resolve_refs(value, value, max_depth) if reader.has_refs else value


class _Reader:
    """A recursive-descent reader over one text."""

    def __init__(self, text: str, max_depth: int) -> None:
        self.text = text
        self.pos = 0
        self.max_depth = max_depth
        self.has_refs = False

    def error(self, expected: str) -> HeaderError:
        found = self.text[self.pos : self.pos + 12] or "the end"
        return HeaderError(f"JSON: expected {expected} at character {self.pos}, found {found!r}")

    def skip_space(self) -> str:
        """Skip white space and give the next character, or nothing at the end."""
        match = _SPACE.match(self.text, self.pos)
        if match is not None:
            self.pos = match.end()
        return self.text[self.pos : self.pos + 1]

    def value(self, depth: int) -> Any:
        char = self.skip_space()
        if depth > self.max_depth:
            raise self.error(f"at most {self.max_depth} levels of nesting")
        if char == "{":
            return self.object(depth)
        if char == "[":
            return self.array(depth)
        if char in ('"', "'"):
            return self.string(char)
        number = _NUMBER.match(self.text, self.pos)
        if number is not None:
            return self.number(number)
        word = _WORD.match(self.text, self.pos)
        if word is not None and word.group() in _WORDS:
            self.pos = word.end()
            return _WORDS[word.group()]
        raise self.error("a value")

    def number(self, match: re.Match[str]) -> int | float:
        self.pos = match.end()
        if match.group(1) or match.group(2):
            return float(match.group())
        if len(match.group()) > 40:
            raise self.error("a number of at most 40 digits")
        return int(match.group())

    def string(self, quote: str) -> str:
        plain = _PLAIN if quote == '"' else _PLAIN_SINGLE
        self.pos += 1
        parts: list[str] = []
        while True:
            match = plain.match(self.text, self.pos)
            if match is not None:
                parts.append(match.group())
                self.pos = match.end()
            char = self.text[self.pos : self.pos + 1]
            if char == quote:
                self.pos += 1
                return "".join(parts)
            if char == "":
                raise self.error("the end of a string")
            if char == "\\":
                parts.append(self.escape())
            else:  # a raw control character: Java's reader takes it
                parts.append(char)
                self.pos += 1

    def escape(self) -> str:
        kind = self.text[self.pos + 1 : self.pos + 2]
        digits = {"u": 4, "x": 2}.get(kind)
        if digits is None:
            if kind not in _ESCAPES:
                raise self.error("an escape")
            self.pos += 2
            return _ESCAPES[kind]
        code = self.unit(self.pos + 2, digits)
        self.pos += 2 + digits
        if 0xD800 <= code < 0xDC00 and self.text[self.pos : self.pos + 2] == "\\u":
            low = self.unit(self.pos + 2, 4)
            if 0xDC00 <= low < 0xE000:
                self.pos += 6
                return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00))
        return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)  # a lone surrogate has no UTF-8

    def unit(self, start: int, digits: int) -> int:
        try:
            return int(self.text[start : start + digits].rjust(digits, "?"), 16)
        except ValueError:
            raise self.error("hexadecimal digits") from None

    def array(self, depth: int) -> list[Any]:
        self.pos += 1
        items: list[Any] = []
        while True:
            char = self.skip_space()
            if char == "]":
                self.pos += 1
                return items
            if char == ",":
                self.pos += 1
                continue
            if items and self.text[self.pos - 1] not in ", \t\r\n[":
                raise self.error("',' or ']'")
            items.append(self.value(depth + 1))
            if self.skip_space() not in (",", "]"):
                raise self.error("',' or ']'")

    def object(self, depth: int) -> dict[Any, Any]:
        self.pos += 1
        members: dict[Any, Any] = {}
        while True:
            char = self.skip_space()
            if char == "}":
                self.pos += 1
                self.has_refs |= "$ref" in members
                return members
            if char == ",":
                self.pos += 1
                continue
            key = self.key(char, depth)
            if self.skip_space() != ":":
                raise self.error("':'")
            self.pos += 1
            members[key] = self.value(depth + 1)
            if self.skip_space() not in (",", "}"):
                raise self.error("',' or '}'")

    def key(self, char: str, depth: int) -> Any:
        if char in ('"', "'"):
            return self.string(char)
        if char == "{":
            return bean_key(self.value(depth + 1))
        number = _NUMBER.match(self.text, self.pos)
        if number is not None:
            return self.number(number)
        word = _WORD.match(self.text, self.pos)
        if word is None:
            raise self.error("a key")
        self.pos = word.end()
        return word.group()


def bean_key(members: Mapping[str, Any]) -> BeanKey:
    """An object as a hashable key."""
    if any(isinstance(value, dict | list) for value in members.values()):
        raise HeaderError("JSON: an object used as a key may hold only plain values")
    return tuple(sorted(members.items(), key=lambda item: str(item[0])))


def _resolve_refs(value: Any, root: Any, depth_left: int) -> Any:
    if depth_left < 0:
        raise HeaderError("JSON: '$ref' members that point at each other")
    if isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str) and len(value) == 1:
            return _resolve_refs(_follow(reference, root), root, depth_left - 1)
        return {key: _resolve_refs(item, root, depth_left - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve_refs(item, root, depth_left - 1) for item in value]
    return value


def _follow(reference: str, root: Any) -> Any:
    if not reference.startswith("$"):
        raise HeaderError(f"JSON: the reference {reference!r} does not start at the root")
    target = root
    for name, index in _REF_STEP.findall(reference[1:]):
        try:
            target = target[int(index)] if index else target[name]
        except (KeyError, IndexError, TypeError):
            raise HeaderError(f"JSON: nothing stands at the reference {reference!r}") from None
    return target


def dumps(value: Any, *, browser_compatible: bool = False) -> bytes:
    """Write a value of dicts, lists, strings, numbers, booleans and None in Java's form."""
    parts: list[str] = []
    _write(value, parts, browser_compatible)
    return "".join(parts).encode()


def _write(value: Any, parts: list[str], browser: bool) -> None:
    if isinstance(value, str):
        parts.append(_quote(value, browser))
    elif value is None or value is True or value is False:
        parts.append("null" if value is None else "true" if value else "false")
    elif isinstance(value, int):
        parts.append(str(value))
    elif isinstance(value, Mapping):
        separator = "{"
        for key, item in value.items():
            parts.append(separator)
            _write_key(key, parts, browser)
            parts.append(":")
            _write(item, parts, browser)
            separator = ","
        parts.append("{}" if separator == "{" else "}")
    elif isinstance(value, Sequence):
        separator = "["
        for item in value:
            parts.append(separator)
            _write(item, parts, browser)
            separator = ","
        parts.append("[]" if separator == "[" else "]")
    else:
        raise TypeError(f"a {type(value).__name__} has no JSON form here")


def _write_key(key: Any, parts: list[str], browser: bool) -> None:
    if isinstance(key, str):
        parts.append(_quote(key, browser))
    elif isinstance(key, tuple):
        bean: list[str] = []
        _write(dict(key), bean, browser)
        parts.append(_quote("".join(bean), browser) if browser else "".join(bean))
    else:
        parts.append(f'"{key}"' if browser else str(key))


def _quote(text: str, browser: bool) -> str:
    quoted = msgspec.json.encode(text).decode()
    if not browser:
        return quoted
    if not text.isascii() or "\x7f" in text:
        quoted = re.sub(r"[^\x00-\x7e]", _unicode_escape, quoted)
    return quoted.replace("/", "\\/")


def _unicode_escape(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04X}" for i in range(0, len(units), 2))
