"""Fields of a declared header are read by Java's rules, on whichever of the two ways they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.model.errors import HeaderError
from cometmq.wire.codes import RequestCode
from cometmq.wire.header.schema import (
    Header,
    Int32,
    Int64,
    decode_fields,
    decode_json_header,
    encode_fields,
    read_json_fields,
    request_header,
)
from cometmq.wire.headers.namesrv import GetKVConfigRequest
from tests.all_headers import REQUEST_HEADERS


class Kinds(Header, kw_only=True):
    """A field of every kind."""

    needed_number: Int32
    needed_text: str
    number: Int32 | None = None
    long_number: Int64 | None = None
    truth: bool | None = None
    switch: bool = False
    text: str | None = None


NEEDED = {"neededNumber": "1", "neededText": "t"}


def both_ways(fields: dict[str, Any]) -> Kinds:
    """Read as JSON and as a map; the outcome has to be the same."""
    raw = msgspec.json.encode(fields)
    readers: list[Callable[[], Kinds]] = [
        lambda: decode_json_header(Kinds, raw),
        lambda: decode_fields(Kinds, read_json_fields(raw)),
    ]
    outcomes: list[Kinds | HeaderError] = []
    for read in readers:
        try:
            outcomes.append(read())
        except HeaderError as error:
            outcomes.append(error)
    first, second = outcomes
    assert isinstance(first, HeaderError) == isinstance(second, HeaderError)
    if isinstance(first, HeaderError):
        raise first
    assert first == second
    return first


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("+7", 7),
        ("-7", -7),
        ("007", 7),
        ("-007", -7),
        ("-0", 0),
        ("+0", 0),
        ("0" * 300 + "5", 5),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
        ("\u0663", 3),  # Java takes the digits of every script
    ],
)
def test_an_integer_is_what_javas_parse_takes(text: str, number: int) -> None:
    header = both_ways({**NEEDED, "number": text, "longNumber": text, "neededNumber": text})
    assert (header.number, header.long_number, header.needed_number) == (number, number, number)


@pytest.mark.parametrize(
    "text",
    [
        "1.0",
        "1e2",
        "1E2",
        "100e-2",
        "-0.0",
        " 1",
        "1 ",
        "",
        "-",
        "+",
        "+-1",
        "1_0",
        "0x1",
        "true",
        "NaN",
        "1L",
    ],
)
@pytest.mark.parametrize("field", ["number", "neededNumber", "longNumber"])
def test_text_that_java_takes_for_no_integer_is_refused_with_the_name_of_the_field(
    field: str, text: str
) -> None:
    with pytest.raises(HeaderError, match=f"Kinds: {field} has to be an integer, and is"):
        both_ways({**NEEDED, field: text})


@pytest.mark.parametrize("value", [1.0, 1e2, -0.0, True, [], {}, [1]])
def test_json_values_that_are_no_integers_are_refused(value: object) -> None:
    with pytest.raises(HeaderError, match="number has to be an integer"):
        both_ways({**NEEDED, "number": value})


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("number", "2147483648"),
        ("number", "-2147483649"),
        ("longNumber", str(2**63)),
        ("longNumber", str(-(2**63) - 1)),
        ("longNumber", "9" * 390),
    ],
)
def test_a_number_out_of_range_is_refused(field: str, text: str) -> None:
    with pytest.raises(HeaderError, match=rf"\$\.{field}"):
        both_ways({**NEEDED, field: text})


def test_a_number_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(HeaderError, match="has to be an integer"):
        both_ways({**NEEDED, "number": "9" * 10_000})


@pytest.mark.parametrize("text", ["null", "NULL", "Null"])
def test_the_text_null_leaves_an_optional_number_out_and_a_needed_one_is_refused(text: str) -> None:
    header = both_ways({**NEEDED, "number": text, "truth": text, "text": text})
    assert (header.number, header.truth, header.text) == (None, None, text)
    with pytest.raises(HeaderError, match="neededNumber"):
        both_ways({**NEEDED, "neededNumber": text})


@pytest.mark.parametrize(
    ("text", "truth"),
    [("true", True), ("TRUE", True), ("tRuE", True), ("1", True), ("0", False), ("yes", False), ("", False)],
)
def test_true_in_any_case_is_true_and_everything_else_false(text: str, truth: bool) -> None:
    header = both_ways({**NEEDED, "truth": text, "switch": text})
    assert (header.truth, header.switch) == (truth, truth)


@pytest.mark.parametrize(
    ("value", "text"),
    [(7, "7"), (1.5, "1.5"), (True, "true"), ([1, 2], "[1,2]"), ({"a": None}, '{"a":null}')],
)
def test_the_literal_of_another_value_stands_for_a_text(value: object, text: str) -> None:
    """The Node client sends raw numbers."""
    header = both_ways({"neededText": value, "neededNumber": 7, "text": value})
    assert (header.needed_text, header.text, header.needed_number) == (text, text, 7)


@pytest.mark.parametrize("fields", [{}, {"neededNumber": "1"}, {"neededNumber": "1", "neededText": None}])
def test_a_missing_field_is_named(fields: dict[str, str | None]) -> None:
    with pytest.raises(HeaderError, match="Kinds: the request lacks its field `needed"):
        both_ways(fields)


def test_members_that_no_field_declares_and_nulls_are_passed_over() -> None:
    header = both_ways({**NEEDED, "AccessKey": "x", "switch": None, "number": None})
    assert (header.switch, header.number) == (False, None)


ODD_TEXT = st.one_of(
    st.text(alphabet="0123456789+-.eE_ nulNUL\\", max_size=8),
    st.integers().map(str),
    st.sampled_from(["true", "false", "null", "1.0", "1e2", "007", "+7", "-0", ""]),
)
ODD_VALUE = st.one_of(
    ODD_TEXT,
    st.none(),
    st.booleans(),
    st.integers(min_value=-(2**70), max_value=2**63 - 1).filter(lambda number: number >= -(2**63)),
    st.floats(allow_nan=False),
    st.lists(st.integers(min_value=0, max_value=9), max_size=2),
)


@settings(max_examples=500)
@given(
    fields=st.fixed_dictionaries(
        {}, optional=dict.fromkeys(Kinds.__struct_encode_fields__, ODD_VALUE) | {"other": ODD_VALUE}
    )
)
def test_what_is_read_never_depends_on_the_way(fields: dict[str, Any]) -> None:
    try:
        header = both_ways(fields)
    except HeaderError:
        return
    assert both_ways(dict(encode_fields(header))) == header


@pytest.mark.parametrize("depth", [10, 900, 985, 990, 2_000])
def test_deep_nesting_in_an_undeclared_member_is_passed_over_or_refused(depth: int) -> None:
    raw = b'{"neededNumber":"1","neededText":"t","x":' + b"[" * depth + b"]" * depth + b"}"
    try:
        assert decode_json_header(Kinds, raw).needed_text == "t"
    except HeaderError:
        pass


def test_one_code_has_one_header() -> None:
    with pytest.raises(TypeError, match="GET_KV_CONFIG has two headers"):
        request_header(RequestCode.GET_KV_CONFIG)(Kinds)
    assert REQUEST_HEADERS[RequestCode.GET_KV_CONFIG] is GetKVConfigRequest
