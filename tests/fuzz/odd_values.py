"""Values at the limits of what a field, a property or a body may be, and beyond them.

Everything is chosen by the generator that is handed in,
so that the same seed gives the same values. Names that
would be paths only ever lead to `OUTSIDE`, which is a folder beside the store that a run watches.
"""

from __future__ import annotations

import json
import random
from typing import Any, Final

OUTSIDE: Final = "@outside@"
"""Stands for the folder beside the store; `in_place` puts the real one there."""
MANY_DIGITS: Final = 5_000

NUMBERS: Final = [
    "0", "1", "-1", "2", "-2", "127", "255", "65535", "65536",
    str(2**31 - 2), str(2**31 - 1), str(2**31), str(-(2**31)), str(-(2**31) - 1), str(-(2**31) + 1),
    str(2**32), str(2**63 - 2), str(2**63 - 1), str(2**63), str(-(2**63)), str(-(2**63) - 1),
    str(-(2**63) + 1), str(2**64), str(10**18), str(10**30), str(-(10**30)),
    "9" * MANY_DIGITS, "-" + "9" * MANY_DIGITS, "0" * MANY_DIGITS, "9" * 4299,
    "NaN", "nan", "Infinity", "-Infinity", "inf", "1e400", "1e5", "1.5", "-0", "+7", "007", "0x10", "1_000",
    "", " ", " 7 ", "7\n", "٣", "²", "--1", "+", "-", "null", "None", "true", "1,000", "\x00", "1\x00",
]  # fmt: skip
NAMES: Final = [
    "", " ", ".", "..", "...", "../", "../../x", "../" * 12 + "x", "..\\..\\x", "a/b", "a\\b", "/", "//",
    f"{OUTSIDE}/absolute", f"../../{OUTSIDE}/x", "a/../../../../made", "~", "~/made", "config", "commitlog",
    "%2e%2e%2f", "%s%n%d%x", "%", "%%", "%RETRY%", "%DLQ%", "%RETRY%../../x", "%DLQ%../../x",
    "%RETRY%%RETRY%x",
    "\x00", "a\x00b", "a\nb", "a\r\n2026-01-01 00:00:00,000 ERROR forged line", "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07", "\x7f", "\x08\x08", "\x85", "\u2028", "\u202e", "\ufeff", "\t", "\x01", "\x02",
    "a\x01b\x02",
    "é€😀", "日本語", "ñ" * 130, "\ud800", "a\udfff", "\udfff\ud800",
    "a" * 127, "a" * 128, "a" * 255, "a" * 256, "a" * 32_767, "a" * 32_768, "a" * 65_536, "ü" * 40_000,
    "*", "a b", "a@b", "a+b", "a||b", "a,b;c", "{}", "[", '"', "'", "null", "None", "true", "0", "-1", "$ref",
    "${x}", "<script>", "a=b\nc=d", "\\u0000", "\\", "@", "@@@", "#", "?", ":", ":0", "127.0.0.1:0", "-",
]  # fmt: skip
BOOLEANS: Final = [
    "", "TRUE", "True", "tRuE", "yes", "1", "0", "2", "-1", "null", "on", "tru", "false\x00", "Ja", "9" * 50,
    "[]",
    "é", "\n", "NaN",
]  # fmt: skip
BIG: Final = "@big@"
"""Stands in JSON for a number of 5,000 digits, which Python's own writer refuses to write."""
JSON_VALUES: Final[list[Any]] = [
    None, True, False, 0, 1, -1, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, BIG,
    1.5, 1e300, float("nan"), float("inf"), float("-inf"), -0.0, "", "0", "-1", "x" * 70_000, [], {}, [1],
    [None],
    {"a": 1}, [[]], [{}], {"": None}, "\ud800", "\x00", "a\nb", "../../x", "null", "true", "é", [1] * 3_000,
    {"$ref": "$"}, {"@type": "java.lang.Object"},
]  # fmt: skip


def odd_number(choice: random.Random) -> str:
    return choice.choice(NUMBERS)


def odd_name(choice: random.Random) -> str:
    return choice.choice(NAMES)


def odd_boolean(choice: random.Random) -> str:
    return choice.choice(BOOLEANS)


def odd_json_value(choice: random.Random) -> Any:
    return choice.choice(JSON_VALUES)


def json_text(value: Any) -> bytes:
    """JSON with escapes for all that is not ASCII, lone surrogates among it, and with big numbers."""
    return json.dumps(value, separators=(",", ":")).replace(f'"{BIG}"', "9" * MANY_DIGITS).encode()


def in_place(text: str, outside: str) -> str:
    return text.replace(OUTSIDE, outside)


def odd_body(choice: random.Random) -> bytes:
    """Bytes that no request has as its body."""
    kind = choice.randrange(12)
    if kind == 0:
        return choice.randbytes(choice.choice((1, 3, 20, 300, 5_000)))
    if kind == 1:
        depth = choice.choice((10, 100, 990, 5_000, 60_000))
        opening, closing = choice.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"[{", b"}]")))
        return opening * depth + (b"1" + closing * depth if choice.random() < 0.5 else b"")
    if kind == 2:
        return json_text([odd_json_value(choice) for _ in range(choice.randrange(5))])
    if kind == 3:
        return b"[" + b"1," * choice.choice((10, 20_000)) + b"1]"
    return choice.choice(
        (
            b"",
            b"{",
            b"[",
            b'"',
            b"{}",
            b"[]",
            b"null",
            b"1",
            b'"x"',
            b"true",
            b"\xff\xfe",
            b"\xef\xbb\xbf{}",
            b"\x00",
            b"1e999999",
            b"-",
            b"9" * MANY_DIGITS,
            b'{"a":' + b"9" * MANY_DIGITS + b"}",
            b"\xed\xa0\x80",
            b"=",
            b"a=",
            b"=b\n",
            b"a=\\u12",
            b"\n" * 1000,
        )
    )


def bent(choice: random.Random, value: Any) -> Any:
    """The value with something in it, at whatever depth, replaced, removed or added."""
    if isinstance(value, dict) and value and choice.random() < 0.9:
        name = choice.choice(list(value))
        kind = choice.randrange(10)
        if kind == 0:
            return {key: each for key, each in value.items() if key != name}
        if kind == 1:
            return {**value, odd_name(choice): odd_json_value(choice)}
        return {**value, name: bent(choice, value[name])}
    if isinstance(value, list) and value and choice.random() < 0.8:
        place = choice.randrange(len(value))
        if choice.random() < 0.1:
            return value * choice.choice((0, 2, 50))
        return [*value[:place], bent(choice, value[place]), *value[place + 1 :]]
    if isinstance(value, str) and choice.random() < 0.6:
        return odd_name(choice)
    if isinstance(value, int) and not isinstance(value, bool) and choice.random() < 0.4:
        return odd_number(choice)
    return odd_json_value(choice)
