"""The SQL92 filter language: a condition over the properties of a message.

    expression = compile_sql("amount > 100 AND region IN ('north', 'south')")
    expression.matches({"amount": "250", "region": "north"})

Rules kept here:
- Expressions compile, fail and match as in Apache RocketMQ 5.3.3.
- A message does not match if the result is unknown or the expression cannot be applied to it.
- Length, depth and number of operands are limited. Compiling takes time in proportion to the length.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from cometmq.wire.sql92.parser import parse
from cometmq.wire.sql92.terms import Sql92Error as Sql92Error
from cometmq.wire.sql92.terms import Test
from cometmq.wire.sql92.values import EvaluationError

MAX_SQL_CHARACTERS: Final = 16 * 1024
"""The longest expression that is compiled; one of this length takes 30 ms at most."""
_KEPT: Final = 100
"""Compiled expressions kept in a cache."""


class Expression:
    """A compiled expression."""

    __slots__ = ("_test", "text")

    def __init__(self, text: str, test: Test) -> None:
        self.text = text
        self._test = test

    def __repr__(self) -> str:
        return f"<Expression {self.text!r}>"

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether the expression is true for these properties."""
        try:
            return self._test(properties) is True
        except EvaluationError:
            return False


@lru_cache(maxsize=_KEPT)
def compile_sql(text: str) -> Expression:
    """Compile an expression; raises `Sql92Error`, which says where and why it cannot be used."""
    if len(text) > MAX_SQL_CHARACTERS:
        raise Sql92Error(
            f"an SQL92 expression of {len(text)} characters is over the limit of {MAX_SQL_CHARACTERS}"
        )
    return Expression(text, parse(text).test)
