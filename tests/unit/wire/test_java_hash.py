"""The hash of Java strings."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cometmq.wire.java_hash import extend_hash, java_hash, tags_code

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=[]), max_size=600)


def hash_by_the_book(text: str) -> int:
    """Java's definition, one UTF-16 unit after the other."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) % 2**32
    return value - 2**32 if value >= 2**31 else value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("order-created", -392709271),
        ("zzzzzz", -685785664),
        ("TopicTest#key1", -1655984460),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_known_strings_have_the_hash_that_java_gives_them(text: str, expected: int) -> None:
    """B10"""
    assert java_hash(text) == expected


@given(ANY_TEXT)
@example("x" * 256)
@example("\xff" * 257)
@example("\x00" * 5000)
@example("订单" * 200)
@example("key \U0001f680 launched")
@example("a lone \ud83d surrogate")
def test_every_string_has_the_hash_of_javas_definition(text: str) -> None:
    """B10"""
    assert java_hash(text) == hash_by_the_book(text)


@given(ANY_TEXT, ANY_TEXT)
def test_a_hash_goes_on_from_that_of_the_beginning(beginning: str, rest: str) -> None:
    """B10: a topic is hashed once for all its keys."""
    # Two halves of a surrogate pair are one character when they meet, and still the same two units.
    assert extend_hash(java_hash(beginning), rest) == hash_by_the_book(beginning + rest)


def test_the_code_of_tags_keeps_the_sign_of_their_hash() -> None:
    """B8"""
    assert tags_code("zzzzzz").to_bytes(8, "big", signed=True).hex() == "ffffffffd71fbdc0"
    assert tags_code("TagA").to_bytes(8, "big", signed=True).hex() == "000000000027a807"


def test_long_tags_have_a_code_like_short_ones() -> None:
    long = "TagA || TagB" * 100

    assert tags_code(long) == hash_by_the_book(long)
