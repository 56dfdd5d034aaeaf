"""The SQL92 filter language: what it says of messages, what it refuses, and its limits (B8)."""

from __future__ import annotations

import pickle
import time
from contextlib import suppress

import pytest

from cometmq.model.errors import ProtocolError
from cometmq.wire.codes import ResponseCode
from cometmq.wire.sql92.expression import MAX_SQL_CHARACTERS, Sql92Error, compile_sql
from cometmq.wire.sql92.parser import MAX_OPERANDS, MAX_PARENTHESES
from cometmq.wire.sql92.terms import MAX_DEPTH


def matches(text: str, **properties: str) -> bool:
    return compile_sql(text).matches(properties)


@pytest.mark.parametrize(
    "text",
    [
        "a = 1",
        "a <> 2",
        "a >= 1 AND a <= 1",
        "a > 0.5",
        "a BETWEEN 1 AND 5",
        "a NOT BETWEEN 2 AND 5",
        "b = 'it''s'",
        "b IN ('x', 'it''s')",
        "b NOT IN ('x')",
        "b CONTAINS 't'",
        "b STARTSWITH 'it'",
        "b NOT ENDSWITH 'it'",
        "c = TRUE",
        "c = true",
        "b IS NOT NULL and d is null",
        "a = 2 OR b = 'it''s' AND c = TRUE",
        "NOT (a = 2)",
        "a /* one */ = -- is it?\n 1",
        "a = 1L",
        "- -1 = a",
        "+a = 1",
        "5 > a",
    ],
)
def test_conditions_that_are_true_of_a_message(text: str) -> None:
    assert matches(text, a="1", b="it's", c="TRUE")


@pytest.mark.parametrize(
    "text", ["a > 1", "a <> 1", "b = 'x'", "c = FALSE", "a NOT BETWEEN 1 AND 5", "NOT (a = 1)"]
)
def test_conditions_that_are_false_of_a_message(text: str) -> None:
    assert not matches(text, a="1", b="it's", c="TRUE")


@pytest.mark.parametrize(
    "text",
    [
        "x = 'a'",
        "x <> 'a'",
        "NOT (x = 'a')",
        "x > 1",
        "x IN ('a')",
        "x NOT IN ('a')",
        "x CONTAINS 'a'",
    ],
)
def test_a_property_that_is_not_there_matches_in_no_way(text: str) -> None:
    assert not matches(text, other="1")


def test_an_unknown_truth_is_settled_by_what_stands_beside_it() -> None:
    assert matches("x = 1 OR a = 1", a="1")
    assert not matches("x = 1 AND a = 1", a="1")
    assert matches("NOT (x = 1 AND a = 2)", a="1")
    assert not matches("NOT (x = 1 OR a = 2)", a="1")
    assert matches("(x = 1) IS NULL", a="1")


def test_equality_without_a_value_is_unknown_only_on_the_left() -> None:
    assert not matches("x <> 1")
    assert matches("1 <> x")
    assert matches("x = y")
    assert matches("a <> x", a="1")


@pytest.mark.parametrize("text", ["5.5", "abc", "", " 5", "5L", "3000000000", "5_0", "1e1"])
def test_a_text_that_is_no_integer_beside_one_matches_in_no_way(text: str) -> None:
    for sign in ("=", "<>", ">", ">=", "<", "<="):
        assert not matches(f"a {sign} 5", a=text)
        assert not matches(f"NOT (a {sign} 5)", a=text)


def test_a_wide_constant_lets_a_wide_text_in() -> None:
    assert not matches("a > 5", a="3000000000")
    assert matches("a > 2147483648", a="3000000000")
    assert matches("a > 5.0", a="3000000000")


@pytest.mark.parametrize("text", ["1e3", " 1000 ", "1000d", "0x1.f4p9", "1000.", "+1000"])
def test_a_text_beside_a_double_is_read_as_java_reads_doubles(text: str) -> None:
    assert matches("a = 1000.0", a=text)


@pytest.mark.parametrize("text", ["nan", "inf", "1_000.0", "0x10", "d", "", "1e"])
def test_a_text_that_is_a_double_only_to_python_matches_in_no_way(text: str) -> None:
    assert not matches("a > 0.5 OR a <= 0.5", a=text)


def test_two_properties_are_compared_by_size_as_doubles() -> None:
    assert matches("a < b", a="9", b="10")
    assert matches("a > b", a="NaN", b="Infinity")
    assert matches("a > b", a="0.0", b="-0.0")
    assert not matches("a < b OR a >= b", a="9", b="ten")


def test_an_error_behind_the_settled_place_does_not_happen() -> None:
    assert matches("b = 'x' OR a > 1", a="abc", b="x")
    assert not matches("a > 1 OR b = 'x'", a="abc", b="x")


def test_a_property_by_itself_is_no_truth() -> None:
    assert not matches("a", a="true")
    assert matches("NOT a", a="true")
    assert not matches("NOT a")


def test_searching_for_an_empty_text_is_false_both_ways() -> None:
    assert not matches("a CONTAINS ''", a="x")
    assert not matches("a NOT CONTAINS ''", a="x")
    assert not matches("a NOT CONTAINS 'x'")


def test_what_follows_a_complete_expression_is_ignored() -> None:
    assert matches("a = 1 b = 2", a="1")
    assert matches("a = 1) OR", a="1")
    assert matches("a = 007", a="0")
    assert not matches("a LIKE 'x'", a="x"), "the language has no LIKE: this is a lone property"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", 1),
        ("a =", 4),
        ("a = 1 AND", 10),
        ("(a = 1", 7),
        ("a = 1 #", 7),
        ("a != 1", 3),
        ("a NOT foo", 7),
        ("a > 'x'", 5),
        ("a >= TRUE", 6),
        ("a = NULL", 5),
        ("a = 0.0", 5),
        ("a = 1e400", 5),
        ("a = 9223372036854775808", 5),
        ("a BETWEEN 5 AND 1", 3),
        ("a BETWEEN 'a' AND 'b'", 11),
        ("5 IN ('5')", 1),
        ("NOT a IN ('5')", 1),
        ("a IN (5)", 7),
        ("a CONTAINS 5", 12),
        ("TRUE = 1", 1),
        ("a = 1 AND 5", 11),
        ("'x'", 1),
        ("a = 'x", 5),
    ],
)
def test_a_refused_expression_says_where(text: str, place: int) -> None:
    with pytest.raises(Sql92Error, match=rf"at character {place}\b") as refusal:
        compile_sql(text)
    assert isinstance(refusal.value, ProtocolError)
    assert refusal.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert pickle.loads(pickle.dumps(refusal.value)).message == refusal.value.message


def test_the_length_of_an_expression_is_limited() -> None:
    head = "a = '"
    assert matches(head + "x" * (MAX_SQL_CHARACTERS - len(head) - 1) + "'", a="y") is False
    with pytest.raises(Sql92Error, match="over the limit"):
        compile_sql(head + "x" * (MAX_SQL_CHARACTERS - len(head)) + "'")


def test_the_depth_of_an_expression_is_limited() -> None:
    assert matches("NOT " * (MAX_DEPTH - 2) + "(a = 1)", a="1")
    with pytest.raises(Sql92Error, match="nested"):
        compile_sql("NOT " * MAX_DEPTH + "(a = 1)")
    with pytest.raises(Sql92Error, match="nested"):
        compile_sql("a = 1" + " IS NULL" * MAX_DEPTH)
    with pytest.raises(Sql92Error, match="nested"):
        compile_sql("a = " + "-" * MAX_DEPTH + "(b = 1)")
    most = MAX_PARENTHESES
    assert matches("(" * most + "a = 1" + ")" * most, a="1")
    with pytest.raises(Sql92Error, match="nested"):
        compile_sql("(" * (most + 1) + "a = 1" + ")" * (most + 1))


def test_the_number_of_operands_is_limited() -> None:
    assert not matches(" OR ".join(["a"] * MAX_OPERANDS))
    with pytest.raises(Sql92Error, match="more than"):
        compile_sql(" OR ".join(["a"] * (MAX_OPERANDS + 1)))
    many = ", ".join(f"'{number}'" for number in range(MAX_OPERANDS + 1))
    assert matches(f"a IN ({many})", a=str(MAX_OPERANDS)), "texts behind IN do not count"


ROOM = MAX_SQL_CHARACTERS - 10


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a=" + "-" * ROOM, id="minus signs without an end"),
        pytest.param("a=" + "-" * ROOM + "5", id="minus signs"),
        pytest.param("\n" + "-" * ROOM, id="minus signs behind a line"),
        pytest.param("a=" + "+" * ROOM + "5", id="plus signs"),
        pytest.param("(" * ROOM, id="parentheses"),
        pytest.param("NOT " * (ROOM // 4) + "a", id="NOT"),
        pytest.param("a='" + "x" * ROOM, id="a text without an end"),
        pytest.param("a='" + "''" * (ROOM // 2), id="quotes without an end"),
        pytest.param("a='" + "''" * (ROOM // 2) + "'", id="quotes"),
        pytest.param("a IN (" + ",".join(["'x'"] * (ROOM // 4 - 5)) + ")", id="IN"),
        pytest.param("a" * ROOM, id="a long name"),
        pytest.param(" " * ROOM + "a", id="spaces"),
        pytest.param("/*" * (ROOM // 2), id="a comment without an end"),
        pytest.param("/**/" * (ROOM // 4) + "a", id="comments"),
        pytest.param("--\n" * (ROOM // 3) + "a", id="line comments"),
        pytest.param("a=" + "1" * ROOM, id="digits"),
        pytest.param("a=" + "0" * ROOM, id="zeros"),
        pytest.param("a=0." + "1" * ROOM, id="digits behind a point"),
        pytest.param("a=" + "1" * (ROOM - 5) + "e5", id="digits before an exponent"),
        pytest.param(" OR ".join(["a=1"] * (ROOM // 8)), id="OR"),
        pytest.param(" AND ".join(["a BETWEEN 1 AND 2"] * (ROOM // 22)), id="BETWEEN"),
        pytest.param("a" + "=a" * (ROOM // 2), id="equality"),
        pytest.param("a" + ">a" * (ROOM // 2), id="comparisons"),
    ],
)
def test_compiling_takes_time_in_proportion_to_the_length(text: str) -> None:
    """The longest expression takes some 30 ms; a parser that looks at anything twice would take seconds."""
    began = time.process_time()
    with suppress(Sql92Error):
        compile_sql.__wrapped__(text)
    assert time.process_time() - began < 0.5


def test_what_is_nested_in_between_is_computed_once() -> None:
    """Computed once for each end, it would be computed 2 ** 60 times here."""
    levels = 60
    for word in ("BETWEEN", "NOT BETWEEN"):
        text = "-(" * levels + "a = 1" + f") {word} 1 AND 2" * levels
        began = time.process_time()
        assert not matches(text, a="1")
        assert not matches(f"NOT ({text})", a="1")
        assert matches(f"({text}) IS NULL", a="1")
        assert time.process_time() - began < 0.5


@pytest.mark.parametrize("expression", ["a > 1.5", "a = 1.5", "a > 1", "a = 5000000000", "a = b", "a > b"])
def test_values_of_messages_are_converted_in_proportion_to_their_length(expression: str) -> None:
    size = 32_000
    began = time.process_time()
    for value in (
        "1" * size + "x",
        "1" * size,
        ".5" * size,
        "0x" + "f" * size + "g",
        "1e" + "9" * size,
        " " * size,
    ):
        matches(expression, a=value, b=value)
    assert time.process_time() - began < 0.5


def test_a_long_chain_is_not_deep() -> None:
    many = range(700)
    assert matches(" OR ".join(f"a = '{number}'" for number in many), a=str(many[-1]))
    assert matches(" AND ".join(f"a <> '{number}'" for number in many), a="x")


def test_the_same_text_is_compiled_once() -> None:
    assert compile_sql("a = 1 OR b = 2") is compile_sql("a = 1 OR b = 2")
