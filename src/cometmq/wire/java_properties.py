"""Java properties text, the format of RocketMQ's configuration files and configuration requests.

Rules kept here: reading follows Java. Writing escapes everything that would be read differently, so that no
value can smuggle in a line; plain values look as RocketMQ writes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from cometmq.model.errors import HeaderError

MAX_PROPERTIES_CHARS: Final = 256 * 1024
"""A longer text is refused; all settings together take a small part of it."""
_BLANKS: Final = " \t\f"
_SPLIT: Final = re.compile(r"((?:[^\\ \t\f=:]|\\.)*+)[ \t\f]*+[=:]?[ \t\f]*+(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Returns keys and values as Java reads them: with comments, continued lines and escapes."""
    if len(text) > MAX_PROPERTIES_CHARS:
        raise HeaderError(f"{len(text)} characters of settings are over the limit of {MAX_PROPERTIES_CHARS}")
    values: dict[str, str] = {}
    continued: list[str] = []
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(_BLANKS)
        if not continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            continued.append(line[:-1])
            continue
        _take_line("".join((*continued, line)), values)
        continued.clear()
    if continued:
        _take_line("".join(continued), values)
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
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        return _CONTROLS.get(escape, escape)

    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(replace, text)
    # Java's characters are UTF-16: a pair of escapes may be one character, and half a pair is none.
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def format_properties(values: Mapping[str, str]) -> str:
    """One `key=value` a line, sorted, in the form that RocketMQ writes and `parse_properties` reads."""
    return "".join(
        f"{_SPECIAL_IN_KEY.sub(_escaped, key)}={_SPECIAL.sub(_escaped, values[key])}\n"
        for key in sorted(values)
    )


_SPECIAL: Final = re.compile(r"[\\\n\r\f]|^[ \t]")
_SPECIAL_IN_KEY: Final = re.compile(r"[\\\n\r\f =:\t]|^[#!]")
_ESCAPED: Final = {"\n": r"\n", "\r": r"\r", "\f": r"\f", "\t": r"\t"}


def _escaped(match: re.Match[str]) -> str:
    return _ESCAPED.get(match.group(), f"\\{match.group()}")
