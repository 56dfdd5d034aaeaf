"""The properties block."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.model.errors import MessageError
from cometmq.wire.record.properties import (
    MAX_PROPERTIES_LENGTH,
    decode_properties,
    encode_properties,
    find_property,
    format_properties,
    parse_properties,
)

texts = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\x01\x02"), min_size=1, max_size=20
)
maps = st.dictionaries(texts, texts, max_size=8)


def test_properties_are_written_with_a_separator_after_each_of_them() -> None:
    assert encode_properties({"UNIQ_KEY": "ABC", "TAGS": "TagA"}) == b"UNIQ_KEY\x01ABC\x02TAGS\x01TagA\x02"
    assert format_properties({"k": "ü"}) == "k\x01ü\x02"
    assert encode_properties({}) == b""


@settings(deadline=None)
@given(maps)
def test_what_was_written_is_read_again(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties
    assert parse_properties(format_properties(properties)) == properties


@settings(deadline=None)
@given(maps, texts)
def test_one_property_is_found_as_in_the_dictionary(properties: dict[str, str], other: str) -> None:
    block = encode_properties(properties)

    for name in [*properties, other]:
        assert find_property(block, name) == properties.get(name)


def test_the_last_separator_may_be_missing() -> None:
    assert decode_properties(b"a\x01b\x02c\x01d") == {"a": "b", "c": "d"}
    assert find_property(b"a\x01b\x02c\x01d", "c") == "d"


@pytest.mark.parametrize(
    ("block", "read"),
    [
        (b"", {}),
        (b"\x02\x02", {}),
        (b"alone\x02a\x01b\x02", {"a": "b"}),
        (b"\x01value\x02a\x01b\x02", {"a": "b"}),
        (b"name\x01\x02a\x01b\x02", {"a": "b"}),
        (b"a\x01\x02", {}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x01first\x02a\x01second\x02", {"a": "second"}),
        (b"a\x01kept\x02a\x01\x02", {"a": "kept"}),
        (b"a\x01\xff\x02", {"a": "\ufffd"}),
    ],
)
def test_items_that_are_no_properties_are_passed_over(block: bytes, read: dict[str, str]) -> None:
    assert decode_properties(block) == read
    assert decode_properties(memoryview(block)) == read
    assert {name: find_property(memoryview(block), name) for name in read} == read
    assert find_property(block, "name") is None


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_reading_never_fails(block: bytes) -> None:
    assert all(name and value for name, value in decode_properties(block).items())


@settings(deadline=None)
@given(st.lists(st.sampled_from([b"a", b"bc", b"\x01", b"\x02"]), max_size=30).map(b"".join))
def test_finding_one_agrees_with_reading_all(block: bytes) -> None:
    for name in ("a", "bc", "ab", "abc"):
        assert find_property(block, name) == decode_properties(block).get(name)


def test_a_property_without_value_is_left_out_because_no_reader_would_see_it() -> None:
    assert encode_properties({"a": None, "b": "", "c": "1"}) == b"c\x011\x02"
    assert encode_properties({"": ""}) == b""


@pytest.mark.parametrize("broken", [{"a\x01": "b"}, {"a": "b\x02"}, {"a": "b\x01"}, {"\x02": "b"}])
def test_separators_in_names_and_values_are_refused(broken: dict[str, str]) -> None:
    with pytest.raises(MessageError, match="separator"):
        encode_properties({"fine": "yes", **broken})


def test_a_value_without_name_is_refused() -> None:
    with pytest.raises(MessageError, match="no name"):
        encode_properties({"": "value"})


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(MessageError, match="UTF-8"):
        encode_properties({"a": "\ud800"})


def test_the_block_may_take_32767_bytes_and_not_one_more() -> None:
    longest = "é" * ((MAX_PROPERTIES_LENGTH - 3) // 2)

    assert len(encode_properties({"a": longest})) == MAX_PROPERTIES_LENGTH
    with pytest.raises(MessageError, match="32768 bytes, 32767 are possible"):
        encode_properties({"a": longest + "x"})
