"""fastjson: the JSON dialect of RocketMQ's Java side.

Reading accepts everything that Java's reader does: keys without quotes, numbers and whole objects as keys,
single quotes, stray commas, comments, and `$ref` back references. `writer.py` has `dumps`.

Rules kept here:
- Nesting is bounded (`max_depth`), and so are the length of a text in the dialect, which is read a character
  class at a time, and what back references unfold to.
- Everything that cannot be read raises `HeaderError` with the position, and nothing else is raised.
- A text with a lone surrogate cannot travel any further as UTF-8: U+FFFD takes its place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cometmq.model.errors import HeaderError
from cometmq.wire.json.writer import BeanKey as BeanKey
from cometmq.wire.json.writer import Literal as Literal
from cometmq.wire.json.writer import dumps as dumps

MAX_DEPTH: Final = 64
MAX_DIALECT_CHARS: Final = 256 * 1024
"""The default limit for texts in the dialect; reading one takes 250 ms. Standard JSON has no limit."""
MAX_ANSWER_CHARS: Final = 16 * 1024 * 1024
"""The limit for answers to our own requests, which are no larger than a frame."""
MAX_FILE_CHARS: Final = 256 * 1024 * 1024
"""The limit for our own files."""

_SPACE = re.compile(r"(?:[ \t\r\n\f\b]+|/\*.*?\*/|//[^\n]*)*", re.DOTALL)
_COMMAS = re.compile(r"[, \t\r\n]*")
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_MAX_DIGITS: Final = 40
_WORD = re.compile(r"[A-Za-z_$.][\w$.@%+-]*")
_PLAIN = re.compile(r"[^\\\"\x00-\x1f]*")
_PLAIN_SINGLE = re.compile(r"[^\\'\x00-\x1f]*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPES: Final = {
    "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0",
    '"': '"', "'": "'", "\\": "\\", "/": "/",
}  # fmt: skip
_WORDS: Final = {"true": True, "false": False, "null": None, "NaN": None, "undefined": None}
_REF_STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]{1,9})\]")
_REF = re.compile(rf"\$(?:{_REF_STEP.pattern})*")
_MIN_UNFOLDED: Final = 1_000


def loads(
    text: str | bytes | bytearray | memoryview | msgspec.Raw,
    *,
    max_depth: int = MAX_DEPTH,
    max_chars: int = MAX_DIALECT_CHARS,
    literal_numbers: bool = False,
) -> Any:
    """Read one value: standard JSON with msgspec, the dialect with the tolerant reader.

    `literal_numbers` returns numbers as `Literal`, so that `1.50` stays `1.50`.
    """
    if not isinstance(text, str):
        try:
            text = str(memoryview(text), "utf-8")
        except UnicodeDecodeError as error:
            raise HeaderError(f"JSON that is not UTF-8: {error.reason} at byte {error.start}") from None
    if not literal_numbers and '"$ref"' not in text:
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            pass
    if len(text) > max_chars:
        raise HeaderError(f"JSON: {len(text)} characters are too many for anything but standard JSON")
    reader = _Reader(_SURROGATE.sub("\ufffd", text), max_depth, literal_numbers)
    value = reader.value(0)
    reader.skip_space()
    if reader.pos != len(text):
        raise reader.error("end of text")
    if reader.has_refs:
        return _ReferenceResolver(value, max(len(text), _MIN_UNFOLDED)).unfold(value, max_depth)
    return value


class _Reader:
    """A recursive-descent reader over one text."""

    def __init__(self, text: str, max_depth: int, literal_numbers: bool) -> None:
        self.text = text
        self.pos = 0
        self.max_depth = max_depth
        self.literal_numbers = literal_numbers
        self.has_refs = False

    def error(self, expected: str) -> HeaderError:
        found = self.text[self.pos : self.pos + 12] or "the end"
        return HeaderError(f"JSON: expected {expected} at character {self.pos}, found {found!r}")

    def skip_space(self) -> str:
        """Skip white space and comments; returns the next character, or "" at the end."""
        match = _SPACE.match(self.text, self.pos)
        if match is not None:
            self.pos = match.end()
        return self.text[self.pos : self.pos + 1]

    def skip_commas(self) -> None:
        match = _COMMAS.match(self.text, self.pos)
        if match is not None:
            self.pos = match.end()

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

    def number(self, match: re.Match[str]) -> int | float | Literal:
        if len(match.group()) > _MAX_DIGITS:
            raise self.error(f"a number of at most {_MAX_DIGITS} digits")
        if self.literal_numbers:
            self.pos = match.end()
            return Literal(match.group())
        number: int | float
        if match.group(1) is None and match.group(2) is None:
            number = int(match.group())
        else:
            number = float(match.group())
            if math.isinf(number):
                raise self.error("a number that a double can hold")
        self.pos = match.end()
        return number

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
        return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)

    def unit(self, start: int, digits: int) -> int:
        text = self.text[start : start + digits]
        if len(text) < digits or not text.isascii() or not text.isalnum():
            raise self.error("hexadecimal digits")
        try:
            return int(text, 16)
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
                self.skip_commas()
                continue
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
                self.skip_commas()
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
    if any(isinstance(value, dict | list) for value in members.values()):
        raise HeaderError("JSON: an object used as a key may hold only plain values")
    return tuple(sorted(members.items(), key=lambda item: str(item[0])))


class _ReferenceResolver:
    """Replaces back references by their targets.

    A few references to references can stand for billions of values, so their sum is bounded.
    """

    def __init__(self, root: Any, max_values: int) -> None:
        self._root = root
        self._values_left = max_values

    def unfold(self, value: Any, depth_left: int) -> Any:
        self._values_left -= 1
        if depth_left < 0 or self._values_left < 0:
            raise HeaderError("JSON: '$ref' members that point at each other, or stand for too much")
        if isinstance(value, dict):
            reference = value.get("$ref")
            if isinstance(reference, str) and len(value) == 1:
                return self.unfold(self._follow(reference), depth_left - 1)
            return {key: self.unfold(item, depth_left - 1) for key, item in value.items()}
        if isinstance(value, list):
            return [self.unfold(item, depth_left - 1) for item in value]
        return value

    def _follow(self, reference: str) -> Any:
        if not _REF.fullmatch(reference):
            raise HeaderError(f"JSON: the reference {reference[:40]!r} is no path from the root")
        target = self._root
        for name, index in _REF_STEP.findall(reference[1:]):
            try:
                target = target[int(index)] if index else target[name]
            except (KeyError, IndexError, TypeError):
                raise HeaderError(f"JSON: nothing stands at the reference {reference[:40]!r}") from None
        return target
