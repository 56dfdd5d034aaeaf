"""Writes JSON in the form of RocketMQ's Java side, byte for byte.

The caller sorts the members. Keys that are not strings, also whole objects, are written without quotes; with
`browser_compatible` they are quoted, and the text is standard JSON in ASCII.

Rules kept here: numbers, escapes and the replacement (`?`) of text that UTF-8 cannot encode are Java's, so
that equal values have equal bytes on both sides.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cometmq.model.errors import HeaderError

BeanKey = tuple[tuple[str, Any], ...]
"""An object as a map key: its members as sorted pairs."""


class Literal(str):
    """A number as it was read; written unchanged, without quotes."""

    __slots__ = ()


def dumps(value: Any, *, browser_compatible: bool = False) -> bytes:
    """Write dicts, lists, strings, numbers, booleans, bytes and None in Java's form."""
    parts: list[str] = []
    try:
        _write(value, parts, browser_compatible)
    except RecursionError:
        raise HeaderError("JSON: the value is nested too deeply to be written") from None
    return "".join(parts).encode()


def _write(value: Any, parts: list[str], browser: bool) -> None:
    if isinstance(value, str):
        parts.append(value if isinstance(value, Literal) else _quote(value, browser))
    elif value is None or value is True or value is False:
        parts.append("null" if value is None else "true" if value else "false")
    elif isinstance(value, int):
        parts.append(int.__repr__(value))  # the number also of an enumeration's member
    elif isinstance(value, float):
        parts.append(java_double(value) if math.isfinite(value) else "null")
    elif isinstance(value, Mapping):
        separator = "{"
        for key, item in value.items():
            parts.append(separator)
            _write_key(key, parts, browser)
            parts.append(":")
            _write(item, parts, browser)
            separator = ","
        parts.append("{}" if separator == "{" else "}")
    elif isinstance(value, bytes | bytearray | memoryview):
        parts.append(f'"{base64.b64encode(value).decode()}"')
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
    if isinstance(key, str) and not isinstance(key, Literal):
        parts.append(_quote(key, browser))
        return
    bare: list[str] = []
    _write(dict(key) if isinstance(key, tuple) else key, bare, browser)
    text = "".join(bare)
    parts.append(_quote(text, browser) if browser else text)


def java_double(value: float) -> str:
    """A finite number as Java spells a double: `1.0`, `0.001`, `1.0E7`, `1.2E-5`."""
    sign, digits, exponent = _decimal(value)
    if -4 < exponent - 1 < 7 or digits == "0":
        if exponent <= 0:
            return f"{sign}0.{'0' * -exponent}{digits}"
        whole = digits[:exponent].ljust(exponent, "0")
        return f"{sign}{whole}.{digits[exponent:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent - 1}"


def _decimal(value: float) -> tuple[str, str, int]:
    """Sign, digits without zeros around them, and where the point stands: 0.0123 is ("", "123", -1)."""
    text = repr(value)
    sign = "-" if text.startswith("-") else ""
    mantissa, _, power = text.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = len(whole) + int(power or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    return (sign, digits, exponent) if digits else (sign, "0", 1)


_NAMED: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ODD = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')
_BROWSER_ODD = re.compile('["\\\\/\x00-\x1f\x7f-\U0010ffff]')


def _quote(text: str, browser: bool) -> str:
    if browser:
        return f'"{_BROWSER_ODD.sub(_browser_escape, text)}"'
    return f'"{_ODD.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    return _NAMED.get(char) or ("?" if "\ud800" <= char <= "\udfff" else f"\\u{ord(char):04X}")


def _browser_escape(match: re.Match[str]) -> str:
    char = match.group()
    if char == "/":
        return "\\/"
    units = char.encode("utf-16-be", "surrogatepass")
    codes = (units[i] << 8 | units[i + 1] for i in range(0, len(units), 2))
    return _NAMED.get(char) or "".join(f"\\u{code:04X}" for code in codes)
