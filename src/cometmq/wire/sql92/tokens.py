"""Tokens of the SQL92 filter language.

Rules kept here:
- Tokens are read on demand: text after the end of an expression is never looked at.
- Reading a token takes time in proportion to its length, whatever the text is: no pattern looks further than
  the token that it matches, except for the end of a comment, which is looked for once.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from cometmq.wire.sql92.terms import error_at

END: Final = "END"
NAME: Final = "NAME"
INTEGER: Final = "INTEGER"
DOUBLE: Final = "DOUBLE"
TEXT: Final = "TEXT"
SIZE: Final = "SIZE"
SEARCH: Final = "SEARCH"
"""Token types. A keyword or a sign has its own text as its type."""

_KEYWORDS: Final = {
    **{word: word for word in ("AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE")},
    **dict.fromkeys(("CONTAINS", "STARTSWITH", "ENDSWITH"), SEARCH),
}
_LONGEST_KEYWORD: Final = max(map(len, _KEYWORDS))

_SKIPPED: Final = r"[ \t\n\r\f]++|/\*.*?\*/"
_LINE_COMMENT: Final = r"--[^\n\r]*+(?:\r\n|\n|\r)"
_ALL_BUT_COMMENTS: Final = re.compile(f"(?:{_SKIPPED})*+", re.DOTALL)
_ALL: Final = re.compile(f"(?:{_SKIPPED}|{_LINE_COMMENT})*+", re.DOTALL)

_TOKEN: Final = re.compile(
    r"""
    (?P<DOUBLE> (?: [0-9]++\.[0-9]*+ | \.[0-9]++ ) (?:[eE][-+]?[0-9]++)? | [0-9]++[eE][-+]?[0-9]++ )
  | (?P<INTEGER> 0 | [1-9][0-9]*+[lL]? )
  | (?P<TEXT> '[^']*+(?:''[^']*+)*+' )
  | (?P<NAME> [A-Za-z_$][A-Za-z0-9_$]*+ )
  | (?P<SIGN> <> | [-+=(),] )
  | (?P<SIZE> [<>]=? )
    """,
    re.VERBOSE,
)


class Token(NamedTuple):
    """One token; `position` counts characters from 0."""

    kind: str
    text: str
    position: int


class Tokens:
    """The tokens of a text, with one token of look-ahead."""

    __slots__ = ("_last_line_end", "_text", "next")

    def __init__(self, text: str) -> None:
        self._text = text
        self._last_line_end = max(text.rfind("\n"), text.rfind("\r"))
        """After this, `--` begins no comment: a comment needs an end of line."""
        self.next = self._read(0)

    def take(self) -> Token:
        """Returns the next token and moves on."""
        token = self.next
        self.next = self._read(token.position + len(token.text))
        return token

    def _read(self, position: int) -> Token:
        text = self._text
        skipped = (_ALL if position < self._last_line_end else _ALL_BUT_COMMENTS).match(text, position)
        position = position if skipped is None else skipped.end()
        match = _TOKEN.match(text, position)
        if match is None:
            if position == len(text):
                return Token(END, "", position)
            raise error_at(position, f"{text[position]!r} is not understood")
        kind, found = match.lastgroup or "", match.group()
        if kind == "SIGN":
            kind = found
        elif kind == NAME and len(found) <= _LONGEST_KEYWORD:
            kind = _KEYWORDS.get(found.upper(), NAME)
        return Token(kind, found, position)
