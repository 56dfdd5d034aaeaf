"""Integers in the text of a peer, read as Java reads them.

Rules kept here:
- A number is ASCII digits with an optional sign, and fits into Java's `int` or `long`. Everything else is
  None: Python's `int` accepts more (`1_000`, spaces, thousands of digits), which would break later, far from
  its cause.
- Only `long_of` raises, `ValueError` as `int` does.
"""

from __future__ import annotations

import re
from typing import Final

LARGEST_INT: Final = 2**31 - 1
LARGEST_LONG: Final = 2**63 - 1

_SURE_DIGITS: Final = 19
"""Fewer digits than this always fit into a `long`."""
_number: Final = re.compile(r"([+-]?)0*([0-9]{1,19})").fullmatch


def java_long(text: str | None) -> int | None:
    """`Long.parseLong`; None for a text that it does not read."""
    if not text:
        return None
    if len(text) < _SURE_DIGITS and text.isdecimal() and text.isascii():  # almost all
        return int(text)
    found = _number(text)
    if found is None:
        return None
    number = int(found[1] + found[2])
    return number if -LARGEST_LONG - 1 <= number <= LARGEST_LONG else None


def java_int(text: str | None) -> int | None:
    """`Integer.parseInt`; None for a text that it does not read."""
    number = java_long(text)
    return None if number is None or not -LARGEST_INT - 1 <= number <= LARGEST_INT else number


def long_of(text: str) -> int:
    """`Long.parseLong`; raises `ValueError`."""
    number = java_long(text)
    if number is None:
        raise ValueError(f"{text[:40]!r} is no number of 64 bits")
    return number


def natural_long(text: str | None) -> int | None:
    """`java_long` for offsets, times and counts: None for a negative number."""
    number = java_long(text)
    return None if number is None or number < 0 else number


def natural_int(text: str | None) -> int | None:
    """`java_int` for queue ids and counts: None for a negative number."""
    number = java_int(text)
    return None if number is None or number < 0 else number
