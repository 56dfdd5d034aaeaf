"""Java's properties text: what RocketMQ's configuration files and configuration requests are written in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from cometmq.model.errors import HeaderError

_SPLIT: Final = re.compile(r"((?:[^\\\s=:]|\\.)*)\s*[=:\s]?\s*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.)", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values; comments, continued lines and escapes as Java reads them. The last of a key counts."""
    values: dict[str, str] = {}
    continued = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = continued + raw.lstrip(" \t\f")
        if not continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            continued = line[:-1]
            continue
        continued = ""
        _take_line(line, values)
    if continued:
        _take_line(continued, values)
    return values


def _take_line(line: str, values: dict[str, str]) -> None:
    match = _SPLIT.fullmatch(line)
    if match is not None and line:
        values[_unescape(match.group(1))] = _unescape(match.group(2))


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        escape = match.group(1)
        if escape == "u":
            raise HeaderError(f"the escape \\u at character {match.start()} needs four hexadecimal digits")
        if escape[0] == "u" and len(escape) == 5:
            return chr(int(escape[1:], 16))
        return _CONTROLS.get(escape, escape)

    return _ESCAPE.sub(replace, text) if "\\" in text else text


def format_properties(values: Mapping[str, str]) -> str:
    """One `key=value` a line, sorted, unescaped, as RocketMQ writes them."""
    return "".join(f"{key}={values[key]}\n" for key in sorted(values))
