"""Whole numbers in the text of a peer, as Java reads them: a property, a field, a member of a body.

Rules kept here:
- A text is a number if it is decimal digits of ASCII, with a sign at most, and if its value fits into Java's
  `int` or `long`. Everything else is None: Python's `int` takes more (`1_000`, spaces, any length up to some
  thousands of digits, where it raises), and what does not fit breaks later, far from its cause.
- Nothing here raises, whatever the text is, but `long_of`, which raises `ValueError` as `int` does.
"""

from __future__ import annotations

import re
from typing import Final

LARGEST_INT: Final = 2**31 - 1
LARGEST_LONG: Final = 2**63 - 1

_number: Final = re.compile(r"([+-]?)0*([0-9]{1,19})").fullmatch


def java_long(text: str | None) -> int | None:
    """The value of a text that `Long.parseLong` reads; None for every other."""
    found = _number(text) if text else None
    if found is None:
        return None
    number = int(found[1] + found[2])
    return number if -LARGEST_LONG - 1 <= number <= LARGEST_LONG else None


def java_int(text: str | None) -> int | None:
    """The value of a text that `Integer.parseInt` reads; None for every other."""
    number = java_long(text)
    return None if number is None or not -LARGEST_INT - 1 <= number <= LARGEST_INT else number


def long_of(text: str) -> int:
    """The same as `java_long`; raises `ValueError` for what it does not read."""
    number = java_long(text)
    if number is None:
        raise ValueError(f"{text[:40]!r} is no number of 64 bits")
    return number


def natural_long(text: str | None) -> int | None:
    """The same as `java_long` for what cannot be negative: a place, a time, a count."""
    number = java_long(text)
    return None if number is None or number < 0 else number


def natural_int(text: str | None) -> int | None:
    """The same as `java_int` for what cannot be negative: the number of a queue, a count."""
    number = java_int(text)
    return None if number is None or number < 0 else number
