"""The SQL92 filter language: a condition over the properties of a message.

    expression = compile_sql("amount > 100 AND region IN ('north', 'south')")
    expression.matches({"amount": "250", "region": "north"})

Rules kept here:
- What compiles, what does not, and what an expression says of a message are as in Apache RocketMQ 5.3.3.
- A message of which an expression says neither yes nor no, or to which it cannot be applied, is not matched.
- An expression has a limited length and depth and a limited number of operands; beyond them it is refused
  like one that makes no sense. Compiling takes time in proportion to the length of the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from cometmq.wire.sql92.parser import parse
from cometmq.wire.sql92.terms import Sql92Error, Test
from cometmq.wire.sql92.values import EvaluationError

MAX_SQL_CHARACTERS: Final = 16 * 1024
"""The longest expression that is compiled; one of this length takes 30 ms at most."""
_KEPT: Final = 100
"""How many compiled expressions are kept for those who ask for the same again."""


class Expression:
    """A compiled expression."""

    __slots__ = ("_test", "text")

    def __init__(self, text: str, test: Test) -> None:
        self.text = text
        self._test = test

    def __repr__(self) -> str:
        return f"<Expression {self.text!r}>"

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether the expression is true of a message with these properties."""
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


__all__ = ["MAX_SQL_CHARACTERS", "Expression", "Sql92Error", "compile_sql"]
