"""Numbers in the text of a peer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.java_numbers import java_int, java_long, natural_int, natural_long

NO_NUMBERS = [
    None, "", " ", "+", "-", "1 ", " 1", "1_000", "\u0661\u0662", "0x10", "1.0", "1e3", "NaN", "inf", "²",
    "9" * 5000, "-" + "9" * 5000, str(10**30), "1\x00", "--1",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_java_does_not_read_is_no_number(text: str | None) -> None:
    assert java_int(text) is None
    assert java_long(text) is None


def test_numbers_are_read_up_to_the_limits_of_their_kind() -> None:
    assert java_int("2147483647") == 2**31 - 1
    assert java_int("-2147483648") == -(2**31)
    assert java_int("2147483648") is None
    assert java_long("9223372036854775807") == 2**63 - 1
    assert java_long("-9223372036854775808") == -(2**63)
    assert java_long("9223372036854775808") is None
    assert java_long("+7") == 7


def test_zeros_in_front_count_for_nothing_however_many_there_are() -> None:
    assert java_int("0" * 6000 + "12") == 12
    assert java_long("0" * 6000) == 0


def test_natural_numbers_are_not_negative() -> None:
    assert (natural_int("-1"), natural_long("-1"), natural_int("-0"), natural_long("5")) == (None, None, 0, 5)


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_long_is_read_as_it_was_written(number: int) -> None:
    assert java_long(str(number)) == number


@given(st.text())
def test_no_text_raises(text: str) -> None:
    java_int(text)
    java_long(text)
