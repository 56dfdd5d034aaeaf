"""The values of the SQL92 filter language, converted and compared as Java does it.

A property is a text; a constant is a text, a truth, an integer of 32 or of 64 bits, or a double. Two values
of different types meet in the type of the one that is not a text.

Rules kept here:
- A text that does not convert is an evaluation error, and never a value: Java's `Integer.valueOf` takes a
  sign and digits and nothing else, and its `Double.valueOf` takes spaces around the number, hexadecimal
  digits and the names `NaN` and `Infinity`.
- Doubles are in Java's order: NaN equals itself and is above everything, and -0.0 is below 0.0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final

from cometmq.model.errors import ProtocolError


class EvaluationError(ProtocolError):
    """The expression cannot be applied to a message, which therefore does not match."""


class Long(int):
    """An integer that Java holds in 64 bits; a text compared with it may need as many."""


Value = bool | int | float | str | None

# Possessive quantifiers (`++`): backtracking over many digits would take quadratic time.
_INTEGER: Final = re.compile(r"[-+]?[^\W_a-zA-Z\U00010000-\U0010FFFF]++")
_DECIMAL: Final = re.compile(r"[-+]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][-+]?[0-9]++)?")
_HEXADECIMAL: Final = re.compile(
    r"[-+]?0[xX](?:[0-9a-fA-F]++\.?[0-9a-fA-F]*+|\.[0-9a-fA-F]++)[pP][-+]?[0-9]++"
)
_SPACES: Final = "".join(map(chr, range(0x21)))
_NAMED: Final = {
    sign + name: float(sign + number)
    for sign in ("", "+", "-")
    for name, number in (("NaN", "nan"), ("Infinity", "inf"))
}


def to_int32(text: str) -> int:
    """Java's `Integer.valueOf`."""
    number = _to_integer(text)
    if not -(2**31) <= number < 2**31:
        raise EvaluationError(f"{text} does not fit into 32 bits")
    return number


def to_int64(text: str) -> int:
    """Java's `Long.valueOf`."""
    number = _to_integer(text)
    if not -(2**63) <= number < 2**63:
        raise EvaluationError(f"{text} does not fit into 64 bits")
    return number


def _to_integer(text: str) -> int:
    if (text.isascii() and text.isdigit()) or _INTEGER.fullmatch(text):
        try:
            return int(text)
        except ValueError:  # thousands of digits, or a sign that is a digit only to some
            pass
    raise EvaluationError(f"{text[:40]!r} is no integer")


def to_double(text: str) -> float:
    """Java's `Double.valueOf`."""
    bare = text.strip(_SPACES)
    if bare in _NAMED:
        return _NAMED[bare]
    if bare[-1:] in ("d", "D", "f", "F") and bare[-2:-1]:
        bare = bare[:-1]
    if _DECIMAL.fullmatch(bare):
        return float(bare)
    if _HEXADECIMAL.fullmatch(bare):
        try:
            return float.fromhex(bare)
        except OverflowError:
            return -math.inf if bare[0] == "-" else math.inf
    raise EvaluationError(f"{text[:40]!r} is no number")


def to_boolean(text: str) -> bool:
    """Java's `Boolean.valueOf`."""
    return text.lower() == "true"


def equal(left: Value, right: Value) -> bool | None:
    """Java's `=`. It is not symmetric: without a right side it is false, without a left one unknown."""
    if left is None or right is None:
        if left is not None:
            return False
        return True if right is None else None
    if isinstance(left, bool) and isinstance(right, str):
        raise EvaluationError("a truth cannot be compared with a property on its right")
    if isinstance(left, bool) or isinstance(right, bool):
        if isinstance(left, str):
            return to_boolean(left) is right
        return left is right
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    return order_of_numbers(left, right) == 0


def order(left: Value, right: Value) -> int | None:
    """Returns a number below, at or above zero; None if a side is unknown.

    Truths do not come here: the compiler refuses them.
    """
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return order_of_doubles(to_double(left), to_double(right))
    return order_of_numbers(left, right)


def order_of_numbers(left: Value, right: Value) -> int:
    """The order of two values of which at least one is a number."""
    first = converter_beside(right)(left) if isinstance(left, str) else left
    second = converter_beside(left)(right) if isinstance(right, str) else right
    assert first is not None
    assert second is not None
    if isinstance(first, float) or isinstance(second, float):
        return order_of_doubles(float(first), float(second))
    return (first > second) - (first < second)


def converter_beside(number: Value) -> Callable[[str], int | float]:
    """Returns the conversion of a text that is compared with this number."""
    if isinstance(number, float):
        return to_double
    return to_int64 if isinstance(number, Long) else to_int32


def order_of_doubles(left: float, right: float) -> int:
    """Java's `Double.compareTo`."""
    if left != right and left == left and right == right:
        return 1 if left > right else -1
    return (_rank(left) > _rank(right)) - (_rank(left) < _rank(right))


def _rank(number: float) -> tuple[bool, float, float]:
    if number != number:
        return True, 0.0, 0.0
    return False, number, math.copysign(1.0, number)
