"""Terms of SQL92 filter expressions, compiled to functions over the properties of a message.

An operand is a property, a constant, or computed; a condition is computed and is a truth. One call computes
its value. The most common condition, a property compared with a constant, has a function of its own.

Rules kept here:
- Truth has three values. AND and OR evaluate from the left and stop when the outcome is settled, so that an
  evaluation error after that does not happen.
- Nonsense is refused when it is compiled, with its position in the text; nonsense that depends on the message
  is an `EvaluationError`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from cometmq.model.errors import ProtocolError
from cometmq.wire.codes import ResponseCode
from cometmq.wire.sql92.values import Long, Value, converter_beside, equal, order, to_boolean

MAX_DEPTH: Final = 200
"""The deepest nesting of conditions; evaluating needs a stack frame for each level."""

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]
Test = Callable[[Properties], bool | None]


class Sql92Error(ProtocolError):
    """An expression that cannot be compiled; the message says where and why."""

    def __init__(self, message: str, *, code: int | None = ResponseCode.SUBSCRIPTION_PARSE_FAILED) -> None:
        super().__init__(message, code=code)


def error_at(position: int, reason: str) -> Sql92Error:
    """`position` counts characters from 0."""
    return Sql92Error(f"the SQL92 expression cannot be used: {reason} at character {position + 1}")


class Property(msgspec.Struct, frozen=True):
    """The value of a property; None if the message does not have it."""

    position: int
    name: str
    depth: int = 0


class Constant(msgspec.Struct, frozen=True):
    """A literal, or the negative of one."""

    position: int
    value: Value
    literal: bool = True
    """Type checks apply to literals only, not to negated ones."""
    depth: int = 0


class Computed(msgspec.Struct, frozen=True):
    """A value that is never a truth and has to be evaluated."""

    position: int
    evaluate: Evaluate
    depth: int


class Condition(msgspec.Struct, frozen=True):
    """A truth."""

    position: int
    test: Test
    depth: int


Operand = Property | Constant | Computed | Condition


def condition(position: int, test: Test, *parts: Operand) -> Condition:
    """Returns a condition over its parts; refuses one that is too deep."""
    depth = 1 + max((part.depth for part in parts), default=0)
    if depth > MAX_DEPTH:
        raise _too_deep(position)
    return Condition(position, test, depth)


def _too_deep(position: int) -> Sql92Error:
    return error_at(position, f"more than {MAX_DEPTH} conditions are nested")


def evaluator(operand: Operand) -> Evaluate:
    """Returns a function that computes the value of an operand."""
    if isinstance(operand, Property):
        name = operand.name
        return lambda properties: properties.get(name)
    if isinstance(operand, Constant):
        value = operand.value
        return lambda properties: value
    return operand.test if isinstance(operand, Condition) else operand.evaluate


def as_condition(operand: Operand) -> Condition:
    """Returns an operand as a truth. A property by itself is none: its value is a text."""
    if isinstance(operand, Condition):
        return operand
    if isinstance(operand, Property):
        name = operand.name
        return condition(operand.position, lambda properties: False if name in properties else None)
    if isinstance(operand, Constant) and operand.literal:
        value = operand.value
        if value is None or isinstance(value, bool):
            return condition(operand.position, lambda properties: value)
    raise error_at(operand.position, "a condition is expected and not a value")


# Logic.


def all_of(position: int, terms: Sequence[Operand]) -> Condition:
    """AND."""
    parts = [as_condition(term) for term in terms]
    tests = tuple(part.test for part in parts)

    def test(properties: Properties) -> bool | None:
        outcome: bool | None = True
        for each in tests:
            truth = each(properties)
            if truth is False:
                return False
            if truth is None:
                outcome = None
        return outcome

    return condition(position, test, *parts)


def any_of(position: int, terms: Sequence[Operand]) -> Condition:
    """OR."""
    parts = [as_condition(term) for term in terms]
    tests = tuple(part.test for part in parts)

    def test(properties: Properties) -> bool | None:
        outcome: bool | None = False
        for each in tests:
            truth = each(properties)
            if truth is True:
                return True
            if truth is None:
                outcome = None
        return outcome

    return condition(position, test, *parts)


def negation(position: int, term: Operand) -> Condition:
    """NOT."""
    part = as_condition(term)
    inner = part.test

    def test(properties: Properties) -> bool | None:
        truth = inner(properties)
        return None if truth is None else not truth

    return condition(position, test, part)


# Values.


def negative(position: int, operand: Operand) -> Operand:
    """The minus sign; of anything but a number the result is unknown."""
    if isinstance(operand, Constant):
        value = operand.value
        if isinstance(value, Long):
            return Constant(position, Long(-value), literal=False)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return Constant(position, -value, literal=False)
        return Constant(position, None, literal=False)
    if isinstance(operand, Property):
        return Constant(position, None, literal=False)
    if operand.depth >= MAX_DEPTH:
        raise _too_deep(position)
    inner = evaluator(operand)

    def nothing(properties: Properties) -> Value:
        inner(properties)  # its evaluation error is one here as well
        return None

    return Computed(position, nothing, operand.depth + 1)


# Comparisons.

_SIZES: Final[dict[str, tuple[Callable[[float, float], bool], str]]] = {
    ">": (operator.gt, "<"),
    ">=": (operator.ge, "<="),
    "<": (operator.lt, ">"),
    "<=": (operator.le, ">="),
}
"""The meaning of each comparison, and its reverse."""


def equality(position: int, left: Operand, right: Operand) -> Condition:
    """The sign `=`."""
    for side in (left, right):
        if isinstance(side, Constant) and side.literal and side.value is None:
            raise error_at(side.position, "NULL cannot be compared; use IS NULL")
    values = [side.value for side in (left, right) if isinstance(side, Constant) and side.literal]
    if len(values) == 2 and isinstance(values[0], bool) and not isinstance(values[1], bool):
        raise error_at(position, "a truth is compared with a constant of another type")
    if isinstance(left, Property) and isinstance(right, Constant) and right.value is not None:
        return condition(position, _property_equals(left.name, right.value))
    left_value, right_value = evaluator(left), evaluator(right)
    return condition(
        position, lambda properties: equal(left_value(properties), right_value(properties)), left, right
    )


def _property_equals(name: str, value: Value) -> Test:
    convert: Callable[[str], Value]
    if isinstance(value, str):

        def is_text(properties: Properties) -> bool | None:
            text = properties.get(name)
            return None if text is None else text == value

        return is_text
    convert = to_boolean if isinstance(value, bool) else converter_beside(value)

    def is_value(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else convert(text) == value

    return is_value


def is_null(position: int, operand: Operand) -> Condition:
    """IS NULL."""
    if isinstance(operand, Property):
        name = operand.name
        return condition(position, lambda properties: name not in properties)
    value = evaluator(operand)
    return condition(position, lambda properties: value(properties) is None, operand)


def comparison(position: int, sign: str, left: Operand, right: Operand) -> Condition:
    """The signs `>`, `>=`, `<` and `<=`."""
    for side in (left, right):
        is_number = isinstance(side, Constant) and not isinstance(side.value, bool | str | None)
        if isinstance(side, Condition) or (isinstance(side, Constant) and side.literal and not is_number):
            raise error_at(side.position, f"what is beside {sign} has to be a number or a property")
    holds, reverse_sign = _SIZES[sign]
    if isinstance(left, Property) and isinstance(right, Constant) and right.value is not None:
        return condition(position, _property_compares(left.name, holds, right.value))
    if isinstance(right, Property) and isinstance(left, Constant) and left.value is not None:
        return condition(position, _property_compares(right.name, _SIZES[reverse_sign][0], left.value))
    left_value, right_value = evaluator(left), evaluator(right)

    def test(properties: Properties) -> bool | None:
        outcome = order(left_value(properties), right_value(properties))
        return None if outcome is None else holds(outcome, 0)

    return condition(position, test, left, right)


def _property_compares(name: str, holds: Callable[[float, float], bool], number: Value) -> Test:
    assert isinstance(number, int | float)
    convert = converter_beside(number)
    beside_double = isinstance(number, float)

    def test(properties: Properties) -> bool | None:
        text = properties.get(name)
        if text is None:
            return None
        value = convert(text)
        if beside_double and math.isnan(value):
            value = math.inf  # NaN is above every number; a constant is neither of them
        return holds(value, number)

    return test


def between(position: int, operand: Operand, low: Operand, high: Operand) -> Condition:
    """BETWEEN, both ends included."""
    ends = [end.value for end in (low, high) if isinstance(end, Constant) and end.literal]
    lower, upper = comparison(position, ">=", operand, low), comparison(position, "<=", operand, high)
    if len(ends) == 2 and (order(*ends) or 0) > 0:
        raise error_at(position, f"the lower end {ends[0]} of BETWEEN is above the upper end {ends[1]}")
    if isinstance(operand, Computed):
        return _between_unknown(position, operand, low, high)
    return all_of(position, (lower, upper))


def not_between(position: int, operand: Operand, low: Operand, high: Operand) -> Condition:
    """NOT BETWEEN; here the order of the ends does not matter."""
    below, above = comparison(position, "<", operand, low), comparison(position, ">", operand, high)
    if isinstance(operand, Computed):
        return _between_unknown(position, operand, low, high)
    return any_of(position, (below, above))


def _between_unknown(position: int, operand: Computed, low: Operand, high: Operand) -> Condition:
    """BETWEEN of an unknown value: evaluated once, for its errors.

    Two comparisons would evaluate it twice, and twice as often with each level of nesting.
    """
    parts = (operand, low, high)
    evaluators = tuple(map(evaluator, parts))

    def test(properties: Properties) -> bool | None:
        for each in evaluators:
            each(properties)
        return None

    return condition(position, test, *parts)


def membership(position: int, operand: Operand, texts: Sequence[str], *, wanted: bool) -> Condition:
    """IN, or NOT IN where `wanted` is False."""
    if not isinstance(operand, Property):
        raise error_at(operand.position, "what is tested with IN has to be a property")
    name, members = operand.name, frozenset(texts)

    def test(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else (text in members) is wanted

    return condition(position, test)


def text_search(
    position: int, operand: Operand, found: Callable[[str, str], bool], search: str, *, wanted: bool
) -> Condition:
    """CONTAINS, STARTSWITH and ENDSWITH, or their opposites where `wanted` is False.

    The result is False for an empty text, and for a value that is no text or missing.
    """
    if not search:
        return condition(position, lambda properties: False, operand)
    value = evaluator(operand)

    def test(properties: Properties) -> bool | None:
        text = value(properties)
        return isinstance(text, str) and found(text, search) is wanted

    return condition(position, test, operand)
