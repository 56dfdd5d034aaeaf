"""Properties text is read as Java reads it, and what is written is read back (N2, N9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.errors import HeaderError
from cometmq.wire.java_properties import format_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("listenPort=9876", {"listenPort": "9876"}),
        ("a=1\nb=2\r\nc=3\rd=4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("a = 1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a\t=\f1", {"a": "1"}),
        ("  a=1", {"a": "1"}),
        ("a=1  ", {"a": "1  "}),
        ("a=b=c", {"a": "b=c"}),
        ("a = = 1", {"a": "= 1"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=1", {"": "1"}),
        ("", {}),
        ("\n\n  \n", {}),
        ("# a=1\n! b=2\n  # c=3", {}),
        ("a=1 # no comment", {"a": "1 # no comment"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=one,\\\n   two", {"a": "one,two"}),
        ("a=one\\\r\n   two\\\n  three", {"a": "onetwothree"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a=\\\n# no comment", {"a": "# no comment"}),
        ("\\\n#a=1", {"#a": "1"}),
        ("a\\ b=1", {"a b": "1"}),
        ("a\\=b=1", {"a=b": "1"}),
        ("a=\\t\\n\\r\\f\\q\\:", {"a": "\t\n\r\fq:"}),
        ("a=\\u00e9\\u20AC", {"a": "é€"}),
        ("a=\\uD83D\\uDE00", {"a": "😀"}),
        ("a=\\uD83D!", {"a": "\ufffd!"}),
        ("grün=weiß", {"grün": "weiß"}),
    ],
)
def test_text_is_read_as_java_reads_it(text: str, values: dict[str, str]) -> None:
    """N2: separators, comments, continued lines, escapes; the last of a key counts."""
    assert parse_properties(text) == values


@pytest.mark.parametrize("text", ["a=\\u00zz", "a=\\u12", "\\u=1", "a=\\uuuuu"])
def test_a_broken_escape_is_refused(text: str) -> None:
    """N9: and nothing else is."""
    with pytest.raises(HeaderError, match="four hexadecimal digits"):
        parse_properties(text)


def test_settings_are_written_as_rocketmq_writes_them() -> None:
    """N9: sorted, one a line, with a line end after the last."""
    values = {"listenPort": "9876", "configBlackList": "a;b", "kvConfigPath": "/home/a b/kv.json"}
    assert (
        format_properties(values) == "configBlackList=a;b\nkvConfigPath=/home/a b/kv.json\nlistenPort=9876\n"
    )


def test_a_value_cannot_smuggle_in_a_line() -> None:
    """N9: a stored value that contains a line end stays one value."""
    text = format_properties({"productEnvName": "x\nkvConfigPath=/elsewhere\r\\"})
    assert text.count("\n") == 1
    assert parse_properties(text) == {"productEnvName": "x\nkvConfigPath=/elsewhere\r\\"}


@given(st.dictionaries(st.text(), st.text(), max_size=5))
def test_what_is_written_is_read_back(values: dict[str, str]) -> None:
    """N9: whatever the keys and values are."""
    assert parse_properties(format_properties(values)) == values


@given(st.text(alphabet="ab=:# !\\u0\n\r\t\f0123"))
def test_any_text_is_read_or_refused(text: str) -> None:
    """N9: no text leads to anything but values or the one error."""
    try:
        values = parse_properties(text)
    except HeaderError:
        assert "\\u" in text
    else:
        assert all(isinstance(value, str) for value in values.values())
