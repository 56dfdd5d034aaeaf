"""JSON files in the form of RocketMQ's Java side; the expected texts were written by Java."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.errors import HeaderError
from cometmq.wire.json import fastjson
from cometmq.wire.json.pretty import dumps_table, loads_table


class Nothing(msgspec.Struct):
    """A bean that has no value for any of its members."""

    a: str | None = None
    b: int | None = None


class Table(msgspec.Struct, rename="camel"):
    zebra_count: int = 0
    apple_name: str | None = None
    offsets: dict[int, int] = msgspec.field(default_factory=dict)
    names: dict[str, str] = msgspec.field(default_factory=dict)


def test_every_kind_of_value_is_indented_as_java_does_it() -> None:
    value = {
        "s": 1,
        2: "two",
        "t": {3: {"x": 1.5}},
        "n": None,
        "list": [{}, [], None, [1, 2], (1, 2), ("a", "b")],
        4: {},
        "yes": True,
    }
    assert dumps_table(value).decode() == (
        '{\n\t"s":1,2:"two",\n\t"t":{3:{\n\t\t\t"x":1.5\n\t\t}\n\t},\n\t"list":[\n\t\t{},\n\t\t[],\n\t\tnull,\n\t\t['
        '\n\t\t\t1,\n\t\t\t2\n\t\t],\n\t\t[1,2],\n\t\t["a","b"]\n\t],4:{},\n\t"yes":true\n}'
    )


def test_values_without_content_have_javas_form_too() -> None:
    value = {
        "bean": Nothing(),
        "nulls": {"k": None},
        "ints": {1: None, 2: 5},
        "set": (Nothing(), 4),
        "none": (),
    }
    assert dumps_table(value).decode() == (
        '{\n\t"bean":{\n\t\t\n\t},\n\t"nulls":{\n\t},\n\t"ints":{2:5\n\t},\n\t"set":[{\n\t\t\n\t},4],\n\t"none":[]\n}'
    )
    assert dumps_table(value, pretty=False) == b'{"bean":{},"nulls":{},"ints":{2:5},"set":[{},4],"none":[]}'


def test_the_members_of_a_struct_are_sorted_and_those_of_a_dict_are_not() -> None:
    table = Table(7, "x", {2: 1, 0: 3}, {"b": "1", "a": "2"})
    assert dumps_table(table, pretty=False) == (
        b'{"appleName":"x","names":{"b":"1","a":"2"},"offsets":{2:1,0:3},"zebraCount":7}'
    )
    assert dumps_table(Table(), pretty=False) == b'{"names":{},"offsets":{},"zebraCount":0}'


def test_odd_characters_are_escaped_as_java_does_it() -> None:
    text = "\x01\x7f\u2028é漢😀'/\\\"\n"
    expected = '"\\u0001\\u007F\\u2028é漢😀\'/\\\\\\"\\n"'
    assert dumps_table(text).decode() == expected
    assert dumps_table({text: 1}, pretty=False).decode() == "{" + expected + ":1}"


@pytest.mark.parametrize(
    "text",
    [
        b'{"zebraCount":7,"offsets":{0:1,1:2},"names":{"a":"{1:2,3:4}"}}',
        b'{"zebraCount":7,"offsets":{"0":1, "1":2},"names":{"a":"{1:2,3:4}"},"added later":[{1:{}}]}',
        b'{\n\t"appleName":null,"offsets":{ 0 : 1 ,\n\t1:2},"zebraCount":"7","names":{"a":"{1:2,3:4}"}}',
        b"{zebraCount:7,,'offsets':{0:1,1:2},/* why not */'names':{'a':'{1:2,3:4}'}}",
        b'{"names":{"a":"{1:2,3:4}"},"zebraCount":7,"first":{0:1,1:2},"offsets":{"$ref":"$.first"}}',
    ],
)
def test_whatever_java_reads_is_read(text: bytes) -> None:
    assert loads_table(Table, text) == Table(7, None, {0: 1, 1: 2}, {"a": "{1:2,3:4}"})


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"offsets":{"a":1}}', b"\xff", b'{"offsets":7}'])
def test_what_cannot_be_read_is_an_error_and_nothing_else(text: bytes) -> None:
    with pytest.raises(HeaderError):
        loads_table(Table, text)


def test_a_table_of_any_size_can_be_read_again() -> None:
    """B9: the offsets of many groups are more than the tolerant reader takes."""
    table = Table(offsets={number: number * 1000 for number in range(400_000)})
    text = dumps_table(table)
    assert len(text) > fastjson.MAX_DIALECT_CHARS
    assert loads_table(Table, text) == table


@given(
    st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1)),
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]))
    ),
    st.booleans(),
)
def test_what_is_written_is_read_again(offsets: dict[int, int], names: dict[str, str], pretty: bool) -> None:
    table = Table(1, None, offsets, names)
    text = dumps_table(table, pretty=pretty)
    assert loads_table(Table, text) == table
    assert fastjson.loads(text)["names"] == names
