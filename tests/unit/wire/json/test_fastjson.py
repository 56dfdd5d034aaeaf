"""Java's dialect of JSON: what is read, what is refused and how, and the bytes that are written."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cometmq.model.errors import HeaderError
from cometmq.wire.codes import ResponseCode
from cometmq.wire.json.fastjson import MAX_DIALECT_CHARS, Literal, bean_key, dumps, loads
from cometmq.wire.json.writer import java_double

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**63), max_value=2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
BEANS = st.dictionaries(TEXT, st.integers(min_value=0, max_value=99) | TEXT, min_size=1, max_size=3)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)

MQ = '{"brokerName":"b","queueId":0,"topic":"t"}'
MQ_KEY = (("brokerName", "b"), ("queueId", 0), ("topic", "t"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{0:"a",1:"b"}', {0: "a", 1: "b"}),
        ("{-1:2,1.5:3}", {-1: 2, 1.5: 3}),
        (f"{{{MQ}:5}}", {MQ_KEY: 5}),
        (f'{{"offsetTable":{{{MQ}:{{"maxOffset":7}}}}}}', {"offsetTable": {MQ_KEY: {"maxOffset": 7}}}),
        ("{a:1,$b:2,_c:3}", {"a": 1, "$b": 2, "_c": 3}),
        ("{'a':'b\"c'}", {"a": 'b"c'}),
        ("[1,]", [1]),
        ("[,1]", [1]),
        ("[1, , ,2]", [1, 2]),
        ("{,'a':1,,}", {"a": 1}),
        ("[1./*x*/,01,+1,-0]", [1.0, 1, 1, 0]),
        ("[NaN,undefined,null,true,false]", [None, None, None, True, False]),
        ('["\\x41\\v\\0\\/\\\'",]', ["A\v\0/'"]),
        ('["\\ud83d\\ude00\\ud800",]', ["\U0001f600\ufffd"]),
        ('["raw\tcontrol\ncharacters",]', ["raw\tcontrol\ncharacters"]),
        ("// first\n[1]", [1]),
        ('{"":1,}', {"": 1}),
    ],
)
def test_the_dialect_is_read_as_java_reads_it(text: str, expected: object) -> None:
    assert loads(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "[1 2",
        "{a:1 b:2}",
        "{é:2}",
        "Infinity",
        "-Infinity",
        ".5",
        "TRUE",
        "'open",
        '"\\q",',
        '"\\u12',
        '["\\u+123",]',
        "[1]x",
        "[1]]",
        "{",
        "[",
        "{a}",
        "{a:}",
        "{[1]:2}",
        "{{'a':[1]}:2}",
        "{{'a':{}}:2}",
        "/* never ends",
        "[1e999,]",
        "[" + "9" * 41 + ",]",
        "[1" + "0" * 5000 + ",]",
    ],
)
def test_what_cannot_be_read_raises_a_header_error_with_its_position(text: str) -> None:
    with pytest.raises(HeaderError, match="JSON"):
        loads(text)


@given(value=VALUES)
def test_standard_json_is_read_like_anybody_reads_it(value: Any) -> None:
    text = json.dumps(value)
    assert loads(text) == value
    assert loads(text.encode()) == value


@given(value=VALUES)
def test_both_readers_agree_on_standard_json(value: Any) -> None:
    """A comment sends the same text through the tolerant one."""
    assert loads(json.dumps(value, ensure_ascii=False) + "/**/") == value


@given(value=VALUES)
@example(value={"a/b": "é\u2028\x7f\U0001f600", "n": [1.5, -0.0, 1e300, 5e-324]})
def test_what_is_written_is_standard_json_and_comes_back(value: Any) -> None:
    assert json.loads(dumps(value)) == value
    text = dumps(value, browser_compatible=True)
    assert text.isascii()
    assert json.loads(text) == value


@given(
    table=st.dictionaries(
        st.integers(min_value=-(2**31), max_value=2**31) | BEANS.map(bean_key), VALUES, max_size=4
    )
)
def test_maps_with_other_keys_than_strings_come_back(table: dict[Any, Any]) -> None:
    assert loads(dumps(table)) == table


def test_keys_are_bare_in_javas_form_and_quoted_for_browsers() -> None:
    table = {1: "ip", MQ_KEY: 5, "s": True}
    assert dumps(table) == b'{1:"ip",' + MQ.encode() + b':5,"s":true}'
    quoted = dumps(table, browser_compatible=True)
    assert quoted == b'{"1":"ip",' + json.dumps(MQ).encode() + b':5,"s":true}'


# What Apache's jars wrote for the same values.
@pytest.mark.parametrize(
    ("value", "java", "browser"),
    [
        ("\x1f\x7f\x80", rb'"\u001F\u007F\u0080"', rb'"\u001F\u007F\u0080"'),
        ('"\\\b\f\n\r\t', rb'"\"\\\b\f\n\r\t"', rb'"\"\\\b\f\n\r\t"'),
        ("<>'()", b'"<>\'()"', b'"<>\'()"'),
        ("a/b", b'"a/b"', rb'"a\/b"'),
        ("é€", '"é€"'.encode(), rb'"\u00E9\u20AC"'),
        ("\u2028\u00a0", '"\\u2028\u00a0"'.encode(), rb'"\u2028\u00A0"'),
        ("\U0001f600", '"\U0001f600"'.encode(), rb'"\uD83D\uDE00"'),
        ("\ud800x", b'"?x"', rb'"\uD800x"'),
    ],
)
def test_texts_are_written_byte_for_byte_as_java_writes_them(value: str, java: bytes, browser: bytes) -> None:
    assert dumps(value) == java
    assert dumps(value, browser_compatible=True) == browser


@pytest.mark.parametrize(
    ("value", "java"),
    [
        (123456789.123, "1.23456789123E8"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.5, "1.5"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1234567.0, "1234567.0"),
        (12345678.0, "1.2345678E7"),
        (9999999.5, "9999999.5"),
        (1e7, "1.0E7"),
        (1e21, "1.0E21"),
        (-1.25e-5, "-1.25E-5"),
        (math.nan, "null"),
        (math.inf, "null"),
    ],
)
def test_doubles_are_written_as_java_spells_them(value: float, java: str) -> None:
    assert dumps(value) == java.encode()


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_in_javas_spelling_is_the_same_double(value: float) -> None:
    assert math.copysign(1, float(java_double(value))) == math.copysign(1, value)
    assert float(java_double(value)) == value


def test_other_values_have_javas_form_too() -> None:
    assert dumps(b"\x00\xff") == b'"AP8="'
    assert dumps({"code": ResponseCode.TOPIC_NOT_EXIST}) == b'{"code":17}'
    assert dumps([None, True, False, {}, []]) == b"[null,true,false,{},[]]"
    with pytest.raises(TypeError, match="object"):
        dumps(object())


def test_numbers_can_be_kept_as_they_were_written() -> None:
    value = loads("{a:1.50,b:[007,1e2],'c':'1.50'}", literal_numbers=True)
    assert value == {"a": "1.50", "b": ["007", "1e2"], "c": "1.50"}
    assert isinstance(value["a"], Literal)
    assert not isinstance(value["c"], Literal)
    assert dumps(value) == b'{"a":1.50,"b":[007,1e2],"c":"1.50"}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a":{"x":1},"b":{"$ref":"$.a"}}', {"a": {"x": 1}, "b": {"x": 1}}),
        ('{"a":[{"x":1}],"b":{"$ref":"$.a[0]"}}', {"a": [{"x": 1}], "b": {"x": 1}}),
        ('[{"x":[1,2]},{"$ref":"$[0].x"}]', [{"x": [1, 2]}, [1, 2]]),
        ('{"$ref":1}', {"$ref": 1}),
        ('{"$ref":"$.a","more":1}', {"$ref": "$.a", "more": 1}),
    ],
)
def test_back_references_are_resolved(text: str, expected: object) -> None:
    assert loads(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"$ref":"$"}',
        '{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}',
        '{"a":{"$ref":"$.c"}}',
        '{"a":{"$ref":".."}}',
        '{"a":{"$ref":"$.a.b[7]"}}',
        '{"a":[1],"b":{"$ref":"$.a[%s]"}}' % ("9" * 5000),
        '{"a":1,"b":{"$ref":"$.a.x"}}',
    ],
)
def test_a_reference_to_nothing_or_to_itself_is_refused(text: str) -> None:
    with pytest.raises(HeaderError, match="JSON"):
        loads(text)


def test_references_that_unfold_to_billions_of_values_are_refused_quickly() -> None:
    levels = ['"l0":["x","x","x","x","x","x","x","x","x","x"]']
    for level in range(1, 12):
        below = f'{{"$ref":"$.l{level - 1}"}}'
        levels.append(f'"l{level}":[{",".join([below] * 10)}]')
    with pytest.raises(HeaderError, match="too much"):
        loads("{" + ",".join(levels) + "}")


@pytest.mark.parametrize("unit", ["[", '{"a":', "{{", "[{"])
@pytest.mark.parametrize("count", [60, 70, 1_000, 100_000])
def test_nesting_is_bounded(unit: str, count: int) -> None:
    with pytest.raises(HeaderError, match="JSON"):
        loads(unit * count)


def test_nesting_up_to_the_limit_is_read() -> None:
    assert loads("[" * 30 + "1," + "]" * 30, max_depth=30) is not None
    with pytest.raises(HeaderError, match="at most 30 levels"):
        loads("[" * 31 + "1," + "]" * 31, max_depth=30)


def test_a_value_nested_too_deeply_to_be_written_is_refused() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(HeaderError, match="nested too deeply"):
        dumps(value)
    while value:  # taken apart by hand: the interpreter would do it recursively
        value = value.pop()


def test_a_long_text_is_read_only_if_it_is_standard_json() -> None:
    numbers = "[" + "1," * (MAX_DIALECT_CHARS // 2)
    assert len(loads(numbers + "1]")) == MAX_DIALECT_CHARS // 2 + 1
    with pytest.raises(HeaderError, match="too many"):
        loads(numbers + "]")


def test_bytes_that_are_not_utf_8_are_refused() -> None:
    with pytest.raises(HeaderError, match="not UTF-8"):
        loads(b'"\xff"')


@settings(max_examples=500)
@given(
    text=st.one_of(
        st.text(max_size=60),
        st.text(alphabet="{}[]\",:'\\ \n-+.eE01289ulnxt$ref/*;\ud800", max_size=60),
        st.binary(max_size=60),
        VALUES.map(lambda value: dumps(value)[:-1]),
    )
)
def test_arbitrary_text_is_read_or_refused_with_a_header_error(text: str | bytes) -> None:
    try:
        value = loads(text)
    except HeaderError:
        return
    dumps(value)


@given(text=st.text())
def test_any_text_can_be_written(text: str) -> None:
    """Lone surrogates included: an answer that quotes odd input has to go out."""
    assert msgspec.json.decode(dumps({text: text})) is not None
    assert dumps({text: text}, browser_compatible=True).isascii()
