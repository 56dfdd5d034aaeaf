"""Tokens of the SQL92 filter language.

Rules kept here:
- The text is cut into tokens regardless of where they stand, one after the other and only as far as somebody
  asks: what follows the end of an expression is never looked at.
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
"""Kinds of tokens. A keyword and a sign are kinds of their own, and called by what they are."""

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
    """One token; `place` counts characters from 0."""

    kind: str
    text: str
    place: int


class Tokens:
    """The tokens of a text, with a look at the next one."""

    __slots__ = ("_last_line_end", "_text", "next")

    def __init__(self, text: str) -> None:
        self._text = text
        self._last_line_end = max(text.rfind("\n"), text.rfind("\r"))
        """Behind this, `--` begins no comment: a comment has to have an end."""
        self.next = self._read(0)

    def take(self) -> Token:
        """The next token; the one behind it is the next one then."""
        token = self.next
        self.next = self._read(token.place + len(token.text))
        return token

    def _read(self, place: int) -> Token:
        text = self._text
        skipped = (_ALL if place < self._last_line_end else _ALL_BUT_COMMENTS).match(text, place)
        place = place if skipped is None else skipped.end()
        match = _TOKEN.match(text, place)
        if match is None:
            if place == len(text):
                return Token(END, "", place)
            raise error_at(place, f"{text[place]!r} is not understood")
        kind, found = match.lastgroup or "", match.group()
        if kind == "SIGN":
            kind = found
        elif kind == NAME and len(found) <= _LONGEST_KEYWORD:
            kind = _KEYWORDS.get(found.upper(), NAME)
        return Token(kind, found, place)
