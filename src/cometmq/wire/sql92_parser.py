"""The grammar of the SQL92 filter language, and the parser that turns a text into a condition.

This module is imported when the first expression is compiled: most brokers and clients never see one.

Rules kept here:
- The text is cut into tokens regardless of where they stand; a token that can go no further ends the
  expression if it is complete there, and what follows is ignored, as Java's parser does.
- However deep a text is nested, parsing does not recurse; `sql92_terms` limits the depth of the result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final, cast

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken, v_args

from cometmq.wire import sql92_terms as terms
from cometmq.wire.sql92_terms import Condition, Constant, Operand, Property, error_at
from cometmq.wire.sql92_values import EvaluationError, Long, to_double, to_int64

_GRAMMAR: Final = r"""
start: either

?either: both (OR both)*
?both: equality (AND equality)*

?equality: comparison
    | equality "=" comparison             -> equal
    | equality NOT_EQUAL comparison       -> not_equal
    | equality IS NULL                    -> is_null
    | equality IS NOT NULL                -> is_not_null

?comparison: unary
    | comparison SIZE unary               -> comparison
    | comparison BETWEEN unary AND unary  -> between
    | comparison NOT BETWEEN unary AND unary -> not_between
    | comparison IN texts                 -> within
    | comparison NOT IN texts             -> not_within
    | comparison SEARCH TEXT              -> search
    | comparison NOT SEARCH TEXT          -> not_search
texts: "(" TEXT ("," TEXT)* ")"

?unary: primary
    | "+" unary
    | MINUS unary                         -> negative
    | NOT unary                           -> negation

?primary: "(" either ")"
    | NAME                                -> property
    | INTEGER                             -> integer
    | DOUBLE                              -> double
    | TEXT                                -> text
    | TRUE                                -> true
    | FALSE                               -> false
    | NULL                                -> null

NOT_EQUAL.1: "<>"
SIZE: /[<>]=?/
MINUS: "-"
DOUBLE.2: /[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+/
INTEGER.1: /0|[1-9][0-9]*[lL]?/
TEXT: /'(?:\'\'|[^'])*'/
NAME: /[A-Za-z_$][A-Za-z0-9_$]*/
%declare AND OR NOT BETWEEN IN IS NULL TRUE FALSE SEARCH

SPACE: /[ \t\n\r\f]+/
LINE_COMMENT.3: /--[^\n\r]*(?:\r\n|\n|\r)/
BLOCK_COMMENT: /\/\*[^*]*\*(?:\*|[^*\/][^*]*\*)*\//
%ignore SPACE
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""

_END: Final = "$END"
"""What the parser calls the token behind the last one."""

_KEYWORDS: Final = {
    **{word: word for word in ("AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE")},
    **dict.fromkeys(("CONTAINS", "STARTSWITH", "ENDSWITH"), "SEARCH"),
}

_SEARCHES: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def parse(text: str) -> Condition:
    """The condition that a text says; raises `Sql92Error`."""
    parser = _PARSER.parse_interactive(text)
    unexpected: Token | None = None
    try:
        parser.exhaust_lexer()
    except UnexpectedCharacters as surprise:
        place = cast(int, surprise.pos_in_stream)
        raise error_at(place, f"{text[place]!r} is not understood") from None
    except UnexpectedToken as surprise:
        unexpected = surprise.token
    try:
        outcome = parser.feed_token(Token(_END, ""))
    except UnexpectedToken:
        if unexpected is None:
            raise error_at(len(text), "the expression ends too early") from None
        raise error_at(_place(unexpected), f"{str(unexpected)!r} is not expected") from None
    assert isinstance(outcome, Condition)
    return outcome


def _known_word(token: Token) -> Token:
    kind = _KEYWORDS.get(token.value.upper())
    return token if kind is None else Token.new_borrow_pos(kind, token.value, token)


def _place(token: Token) -> int:
    return token.start_pos or 0


def _text(token: Token) -> str:
    return str(token)[1:-1].replace("''", "'")


@v_args(inline=True)
class _Terms(Transformer[Token, Condition]):
    """Makes the terms as soon as the parser has seen them."""

    def start(self, operand: Operand) -> Condition:
        return terms.as_condition(operand)

    def either(self, *parts: Operand | Token) -> Condition:
        return terms.any_of(_place(_first_token(parts)), _operands(parts))

    def both(self, *parts: Operand | Token) -> Condition:
        return terms.all_of(_place(_first_token(parts)), _operands(parts))

    def equal(self, left: Operand, right: Operand) -> Condition:
        return terms.equality(left.place, left, right)

    def not_equal(self, left: Operand, _sign: Token, right: Operand) -> Condition:
        return terms.negation(left.place, terms.equality(left.place, left, right))

    def is_null(self, operand: Operand, *_: Token) -> Condition:
        return terms.is_null(operand.place, operand)

    def is_not_null(self, operand: Operand, *_: Token) -> Condition:
        return terms.negation(operand.place, terms.is_null(operand.place, operand))

    def comparison(self, left: Operand, sign: Token, right: Operand) -> Condition:
        return terms.comparison(_place(sign), sign.value, left, right)

    def between(self, operand: Operand, word: Token, low: Operand, _and: Token, high: Operand) -> Condition:
        return terms.between(_place(word), operand, low, high)

    def not_between(
        self, operand: Operand, word: Token, _between: Token, low: Operand, _and: Token, high: Operand
    ) -> Condition:
        return terms.not_between(_place(word), operand, low, high)

    def texts(self, *tokens: Token) -> list[str]:
        return [_text(token) for token in tokens]

    def within(self, operand: Operand, word: Token, texts: list[str]) -> Condition:
        return terms.membership(_place(word), operand, texts, wanted=True)

    def not_within(self, operand: Operand, word: Token, _in: Token, texts: list[str]) -> Condition:
        return terms.membership(_place(word), operand, texts, wanted=False)

    def search(self, operand: Operand, word: Token, text: Token) -> Condition:
        found = _SEARCHES[word.value.upper()]
        return terms.text_search(_place(text), operand, found, _text(text), wanted=True)

    def not_search(self, operand: Operand, _not: Token, word: Token, text: Token) -> Condition:
        found = _SEARCHES[word.value.upper()]
        return terms.text_search(_place(text), operand, found, _text(text), wanted=False)

    def negative(self, sign: Token, operand: Operand) -> Operand:
        return terms.negative(_place(sign), operand)

    def negation(self, word: Token, operand: Operand) -> Condition:
        return terms.negation(_place(word), operand)

    def property(self, name: Token) -> Operand:
        return Property(_place(name), name.value)

    def integer(self, token: Token) -> Operand:
        try:
            number = to_int64(token.value.rstrip("lL"))
        except EvaluationError as error:
            raise error_at(_place(token), error.message) from None
        return Constant(_place(token), number if number < 2**31 else Long(number))

    def double(self, token: Token) -> Operand:
        number = to_double(token.value)
        if not 0.0 < number < float("inf"):
            raise error_at(_place(token), f"{token.value} is out of the range of a double above zero")
        return Constant(_place(token), number)

    def text(self, token: Token) -> Operand:
        return Constant(_place(token), _text(token))

    def true(self, token: Token) -> Operand:
        return Constant(_place(token), True)

    def false(self, token: Token) -> Operand:
        return Constant(_place(token), False)

    def null(self, token: Token) -> Operand:
        return Constant(_place(token), None)


def _first_token(parts: tuple[Operand | Token, ...]) -> Token:
    return next(part for part in parts if isinstance(part, Token))


def _operands(parts: tuple[Operand | Token, ...]) -> list[Operand]:
    return [part for part in parts if not isinstance(part, Token)]


_PARSER: Final = Lark(
    _GRAMMAR, parser="lalr", lexer="basic", transformer=_Terms(), lexer_callbacks={"NAME": _known_word}
)
