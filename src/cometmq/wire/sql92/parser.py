"""The grammar of the SQL92 filter language, and the parser that turns a text into a condition.

    either     = both {OR both}
    both       = equality {AND equality}
    equality   = comparison {"=" comparison | "<>" comparison | IS [NOT] NULL}
    comparison = unary {size unary | [NOT] BETWEEN unary AND unary | [NOT] IN texts | [NOT] search text}
    texts      = "(" text {"," text} ")"
    unary      = {"+" | "-" | NOT} primary
    primary    = "(" either ")" | name | integer | double | text | TRUE | FALSE | NULL

Rules kept here:
- An unexpected token ends the expression if it is complete there; the rest is ignored, as by Java's parser.
- Parsing takes time in proportion to the length of the text. `MAX_PARENTHESES` limits the stack, `terms.py`
  the depth of the result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final

from cometmq.wire.sql92 import terms
from cometmq.wire.sql92.terms import Condition, Constant, Operand, Property, error_at
from cometmq.wire.sql92.tokens import DOUBLE, END, INTEGER, NAME, SEARCH, SIZE, TEXT, Token, Tokens
from cometmq.wire.sql92.values import EvaluationError, Long, to_double, to_int64

MAX_PARENTHESES: Final = 64
"""The deepest nesting of parentheses."""
MAX_OPERANDS: Final = 1_500
"""The most properties and constants; the texts after IN do not count."""

_SEARCHES: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
_WORDS: Final = {"TRUE": True, "FALSE": False, "NULL": None}


def parse(text: str) -> Condition:
    """Returns the condition of a text; raises `Sql92Error`."""
    return terms.as_condition(_Parser(text).either())


class _Parser:
    """A recursive-descent parser over one text."""

    def __init__(self, text: str) -> None:
        self._tokens = Tokens(text)
        self._parentheses = 0
        self._operands = 0

    def _expect(self, kind: str) -> Token:
        if self._tokens.next.kind != kind:
            raise self._unexpected()
        return self._tokens.take()

    def _unexpected(self) -> terms.Sql92Error:
        kind, text, position = self._tokens.next
        if kind == END:
            return error_at(position, "the expression ends too early")
        return error_at(position, f"{text[:40]!r} is not expected")

    def either(self) -> Operand:
        first = self._both()
        if self._tokens.next.kind != "OR":
            return first
        position, parts = self._tokens.next.position, [first]
        while self._tokens.next.kind == "OR":
            self._tokens.take()
            parts.append(self._both())
        return terms.any_of(position, parts)

    def _both(self) -> Operand:
        first = self._equality()
        if self._tokens.next.kind != "AND":
            return first
        position, parts = self._tokens.next.position, [first]
        while self._tokens.next.kind == "AND":
            self._tokens.take()
            parts.append(self._equality())
        return terms.all_of(position, parts)

    def _equality(self) -> Operand:
        tokens, left = self._tokens, self._comparison()
        while True:
            position, kind = left.position, tokens.next.kind
            if kind == "=":
                tokens.take()
                left = terms.equality(position, left, self._comparison())
            elif kind == "<>":
                tokens.take()
                left = terms.negation(position, terms.equality(position, left, self._comparison()))
            elif kind == "IS":
                tokens.take()
                is_negated = self._take_not()
                self._expect("NULL")
                left = terms.is_null(position, left)
                if is_negated:
                    left = terms.negation(position, left)
            else:
                return left

    def _take_not(self) -> bool:
        if self._tokens.next.kind != "NOT":
            return False
        self._tokens.take()
        return True

    def _comparison(self) -> Operand:
        tokens, left = self._tokens, self._unary()
        while True:
            _, text, position = token = tokens.next
            if token.kind == SIZE:
                tokens.take()
                left = terms.comparison(position, text, left, self._unary())
                continue
            is_negated = self._take_not()
            kind = tokens.next.kind
            if kind == "BETWEEN":
                left = self._between(left, position, is_negated=is_negated)
            elif kind == "IN":
                tokens.take()
                left = terms.membership(position, left, self._texts(), wanted=not is_negated)
            elif kind == SEARCH:
                found = _SEARCHES[tokens.take().text.upper()]
                search = self._expect(TEXT)
                left = terms.text_search(search.position, left, found, _text(search), wanted=not is_negated)
            elif is_negated:
                raise self._unexpected()
            else:
                return left

    def _between(self, operand: Operand, position: int, *, is_negated: bool) -> Operand:
        self._tokens.take()
        low = self._unary()
        self._expect("AND")
        high = self._unary()
        return (terms.not_between if is_negated else terms.between)(position, operand, low, high)

    def _texts(self) -> list[str]:
        self._expect("(")
        texts = [_text(self._expect(TEXT))]
        while self._tokens.next.kind == ",":
            self._tokens.take()
            texts.append(_text(self._expect(TEXT)))
        self._expect(")")
        return texts

    def _unary(self) -> Operand:
        tokens = self._tokens
        signs: list[Token] = []
        while tokens.next.kind in ("+", "-", "NOT"):
            signs.append(tokens.take())
        operand = self._primary()
        for kind, _, position in reversed(signs):
            if kind == "-":
                operand = terms.negative(position, operand)
            elif kind == "NOT":
                operand = terms.negation(position, operand)
        return operand

    def _primary(self) -> Operand:
        kind, text, position = self._tokens.next
        if kind == "(":
            return self._parenthesis()
        if kind == NAME:
            operand: Operand = Property(position, text)
        elif kind == INTEGER:
            operand = _integer(text, position)
        elif kind == DOUBLE:
            operand = _double(text, position)
        elif kind == TEXT:
            operand = Constant(position, _text(self._tokens.next))
        elif kind in _WORDS:
            operand = Constant(position, _WORDS[kind])
        else:
            raise self._unexpected()
        self._operands += 1
        if self._operands > MAX_OPERANDS:
            raise error_at(position, f"there are more than {MAX_OPERANDS} properties and constants")
        self._tokens.take()
        return operand

    def _parenthesis(self) -> Operand:
        self._parentheses += 1
        if self._parentheses > MAX_PARENTHESES:
            position = self._tokens.next.position
            raise error_at(position, f"more than {MAX_PARENTHESES} parentheses are nested")
        self._tokens.take()
        operand = self.either()
        self._expect(")")
        self._parentheses -= 1
        return operand


def _text(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")


def _integer(text: str, position: int) -> Constant:
    try:
        number = to_int64(text.rstrip("lL"))
    except EvaluationError as error:
        raise error_at(position, error.message) from None
    return Constant(position, number if number < 2**31 else Long(number))


def _double(text: str, position: int) -> Constant:
    number = to_double(text)
    if not 0.0 < number < float("inf"):
        raise error_at(position, f"{text[:40]} is out of the range of a double above zero")
    return Constant(position, number)
