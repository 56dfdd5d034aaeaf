"""Commands in both header encodings: what goes in comes out, and what Java's reader takes is taken."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cometmq.model.errors import HeaderError
from cometmq.wire.codes import CURRENT, LanguageCode
from cometmq.wire.frame.command import (
    NO_OPAQUE,
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    Command,
    decode_command,
    encode_command,
    encode_request_head,
    encode_response_head,
    salvage_flag,
    salvage_opaque,
)
from cometmq.wire.frame.framing import JSON, ROCKETMQ, Frame, FrameSplitter
from cometmq.wire.header.schema import Header, Int32, encode_fields
from cometmq.wire.headers.send import SendMessageResponse

INT32 = st.integers(min_value=-(2**31), max_value=2**31 - 1)
INT16 = st.integers(min_value=-(2**15), max_value=2**15 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
FULL_TEXT = TEXT.filter(bool)  # the binary layout cannot tell an empty text from none


def frame_of(data: bytes) -> Frame:
    splitter = FrameSplitter()
    splitter.feed(data)
    frame = splitter.next_frame()
    assert frame is not None
    assert splitter.buffered_bytes == 0
    return frame


def json_frame(header: str | bytes) -> Frame:
    raw = header.encode() if isinstance(header, str) else header
    return Frame(JSON, memoryview(raw), memoryview(b""))


def read(header: str) -> Command:
    return decode_command(json_frame(header))


@settings(max_examples=200)
@given(
    code=INT32,
    opaque=INT32,
    flag=INT32,
    version=INT32,
    language=st.sampled_from(LanguageCode),
    remark=st.none() | TEXT,
    fields=st.none() | st.dictionaries(TEXT, st.none() | TEXT, max_size=5),
    body=st.binary(max_size=50),
)
def test_a_json_command_comes_back_as_it_was(
    code: int,
    opaque: int,
    flag: int,
    version: int,
    language: LanguageCode,
    remark: str | None,
    fields: dict[str, str | None] | None,
    body: bytes,
) -> None:
    data = encode_command(
        code, opaque, flag, fields, body=body, remark=remark, version=version, language=language.name
    )
    command = decode_command(frame_of(data))
    assert (command.code, command.opaque, command.flag, command.version) == (code, opaque, flag, version)
    assert (command.language, command.remark, bytes(command.body)) == (language.name, remark, body)
    assert command.fields() == (fields or {})
    assert list(command.fields()) == list(fields or {})
    assert (command.received_fields is None) == (fields is None)
    assert command.flag == flag


@settings(max_examples=200)
@given(
    code=INT16,
    opaque=INT32,
    flag=INT32,
    version=INT16,
    language=st.sampled_from(LanguageCode),
    remark=st.none() | FULL_TEXT,
    fields=st.dictionaries(FULL_TEXT, st.none() | FULL_TEXT, max_size=5),
    body=st.binary(max_size=50),
)
def test_a_binary_command_comes_back_as_it_was(
    code: int,
    opaque: int,
    flag: int,
    version: int,
    language: LanguageCode,
    remark: str | None,
    fields: dict[str, str | None],
    body: bytes,
) -> None:
    data = encode_command(
        code,
        opaque,
        flag,
        fields,
        body=body,
        remark=remark,
        version=version,
        language=language.name,
        serialize_type=ROCKETMQ,
    )
    command = decode_command(frame_of(data))
    assert (command.code, command.opaque, command.flag, command.version) == (code, opaque, flag, version)
    assert (command.language, command.remark, bytes(command.body)) == (language.name, remark, body)
    assert command.fields() == fields


@given(
    opaque=INT32,
    code=st.integers(min_value=0, max_value=3000),
    remark=st.none() | FULL_TEXT,
    fields=st.none() | st.dictionaries(FULL_TEXT, FULL_TEXT, max_size=3),
    body=st.binary(max_size=20),
    kind=st.sampled_from([JSON, ROCKETMQ]),
)
def test_the_head_of_an_answer_and_its_body_make_a_frame(
    opaque: int, code: int, remark: str | None, fields: dict[str, str | None] | None, body: bytes, kind: int
) -> None:
    head = encode_response_head(
        opaque, code, fields, body_bytes=len(body), remark=remark, serialize_type=kind
    )
    command = decode_command(frame_of(head + body))
    assert (command.code, command.opaque, command.remark) == (code, opaque, remark)
    assert (command.fields(), bytes(command.body)) == (fields or {}, body)
    assert (command.flag, command.version, command.language) == (RESPONSE_FLAG, CURRENT, "PYTHON")


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
@pytest.mark.parametrize("remark", [None, "why"])
def test_a_declared_header_is_written_like_the_map_of_its_fields(kind: int, remark: str | None) -> None:
    header = SendMessageResponse(
        msg_id='7F\u0001"\\é', queue_id=3, queue_offset=2**40, transaction_id="", trace_on=True
    )
    plain = encode_fields(header)
    for command, twin in (
        (
            encode_response_head(5, 0, header, 7, remark, kind),
            encode_response_head(5, 0, plain, 7, remark, kind),
        ),
        (encode_request_head(10, 5, 2, header, 7, kind), encode_request_head(10, 5, 2, plain, 7, kind)),
    ):
        read, wanted = (decode_command(frame_of(head + bytes(7))) for head in (command, twin))
        assert msgspec.structs.replace(read, received_fields=read.fields()) == msgspec.structs.replace(
            wanted, received_fields=wanted.fields()
        )
        assert read.header(SendMessageResponse).queue_offset == 2**40


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
def test_half_a_character_in_a_header_becomes_a_question_mark(kind: int) -> None:
    """As Java sends it."""
    header = SendMessageResponse(msg_id="half \ud83d", queue_id=3, queue_offset=4)
    read = decode_command(frame_of(encode_response_head(5, fields=header, serialize_type=kind)))
    assert read.fields() == {"msgId": "half ?", "queueId": "3", "queueOffset": "4"}


DEFAULTS = {"code": 0, "opaque": 5, "flag": 0, "version": 0, "language": "JAVA", "remark": None}

# What Apache's own decoder made of these headers (5.3.3, fastjson 1.2.83).
TAKEN_BY_JAVA: list[tuple[str, dict[str, Any]]] = [
    ('{"code":"10","opaque":"5"}', {"code": 10}),
    ('{"code":1.0,"opaque":5}', {"code": 1}),
    ('{"code":1.9,"opaque":5}', {"code": 1}),
    ('{"code":1e1,"opaque":5}', {"code": 10}),
    ('{"code":"1.0","opaque":5}', {"code": 1}),
    ('{"code":"","opaque":5}', {}),
    ('{"code":"null","opaque":5}', {}),
    ('{"code":null,"opaque":5}', {}),
    ('{"code":"+10","opaque":5}', {"code": 10}),
    ('{"code":"010","opaque":5}', {"code": 10}),
    ('{"code":010,"opaque":5}', {"code": 10}),
    ('{"code":-0,"opaque":5}', {}),
    ('{"code":true,"opaque":5}', {"code": 1}),
    ('{"code":NaN,"opaque":5}', {}),
    ('{"code":"\u0661","opaque":5}', {"code": 1}),
    ('{"Code":105,"OPAQUE":5,"FLAG":1}', {"code": 105, "flag": 1}),
    ('{"_code":105,"o_paque":5}', {"code": 105}),
    ("{code:105,opaque:5}", {"code": 105}),
    ("{'code':105,'opaque':5,'remark':'it\\'s'}", {"code": 105, "remark": "it's"}),
    ('{"code":105,"opaque":5,}', {"code": 105}),
    ('{"code":105,,"opaque":5}', {"code": 105}),
    ('{,"code":105,"opaque":5}', {"code": 105}),
    ('/* c */{"code":105/*x*/,"opaque":5} // end', {"code": 105}),
    (' {"code":105 , "opaque" : 5}\n', {"code": 105}),
    ('{"code":105,"code":106,"opaque":5}', {"code": 106}),
    ('{"code":105,"opaque":5,"other":[1,{"x":[]}]}', {"code": 105}),
    ('{"code":105,"opaque":5,"serializeTypeCurrentRPC":"FOO"}', {"code": 105}),
    ('{"opaque":5,"language":"GO"}', {"language": "GO"}),
    ('{"opaque":5,"language":"go"}', {"language": "GO"}),
    ('{"opaque":5,"language":"Klingon"}', {"language": None}),
    ('{"opaque":5,"language":""}', {"language": None}),
    ('{"opaque":5,"language":3}', {"language": "PYTHON"}),
    ('{"opaque":5,"language":"3"}', {"language": None}),
    ('{"opaque":5,"language":null}', {"language": None}),
    ('{"opaque":5,"remark":7}', {"remark": "7"}),
    ('{"opaque":5,"remark":1.50}', {"remark": "1.50"}),
    ('{"opaque":5,"remark":true}', {"remark": "true"}),
    ('{"opaque":5,"remark":{"a":1}}', {"remark": '{"a":1}'}),
    ('{"opaque":5,"remark":"tab\tin"}', {"remark": "tab\tin"}),
]


@pytest.mark.parametrize(("header", "expected"), TAKEN_BY_JAVA)
def test_an_odd_header_is_read_as_java_reads_it(header: str, expected: dict[str, Any]) -> None:
    command = read(header)
    assert {name: getattr(command, name) for name in DEFAULTS} == {**DEFAULTS, **expected}


FIELDS_TAKEN_BY_JAVA: list[tuple[str, dict[str, str | None]]] = [
    ('{"i":1,"f":1.50,"b":true,"n":null,"s":"t"}', {"i": "1", "f": "1.50", "b": "true", "n": None, "s": "t"}),
    ('{"big":123456789012345678901234567890}', {"big": "123456789012345678901234567890"}),
    ('{"o":{"x":1,"y":[1,2.50]},"l":[1,"2"]}', {"o": '{"x":1,"y":[1,2.50]}', "l": '[1,"2"]'}),
    ("{i:1,f:1.50,b:true,n:null,'s':'t',}", {"i": "1", "f": "1.50", "b": "true", "n": None, "s": "t"}),
    ("{o:{x:1},l:[1],}", {"o": '{"x":1}', "l": "[1]"}),
    ('{"a":"1","a":"2"}', {"a": "2"}),
    ("{}", {}),
    ("null", {}),
    ('""', {}),
]


@pytest.mark.parametrize(("fields", "expected"), FIELDS_TAKEN_BY_JAVA)
@pytest.mark.parametrize(
    "header", ['{"opaque":5,"extFields":%s}', "{opaque:5,extFields:%s,}", '{"OPAQUE":5,"EXTFIELDS":%s}']
)
def test_odd_custom_fields_are_read_as_java_reads_them(
    header: str, fields: str, expected: dict[str, str | None]
) -> None:
    """In a plain header, in one in the dialect, and in one with other names."""
    assert read(header % fields).fields() == expected


REFUSED = [
    '{"code":3000000000,"opaque":5}',
    '{"code":"3000000000","opaque":5}',
    '{"code":-3000000000,"opaque":5}',
    '{"code":99999999999999999999999,"opaque":5}',
    '{"code":1e300,"opaque":5}',
    '{"code":"1e1","opaque":5}',
    '{"code":"1.5","opaque":5}',
    '{"code":" 10 ","opaque":5}',
    '{"code":[1],"opaque":5}',
    '{"code":{},"opaque":5}',
    '{"code":105,"opaque":3000000000}',
    '{"code":105 "opaque":5}',
    '{"code":105,"opaque":5}x',
    '{"code":105,"opaque":5}}',
    '{"code":105,"opaque":5',
    '{"OPAQUE":5,"extFields":"text"}',
    '{"OPAQUE":5,"extFields":[1]}',
    '{"OPAQUE":5,"extFields":5}',
    '{opaque:5,extFields:{{"a":1}:"x"}}',
    '{"opaque":5,"remark":"\\q"}',
    "[]",
    "null",
    "5",
    '"x"',
    "",
    " ",
    "NaN",
]


@pytest.mark.parametrize("header", REFUSED)
def test_a_header_that_java_refuses_raises_a_header_error(header: str) -> None:
    with pytest.raises(HeaderError):
        read(header)


@pytest.mark.parametrize("header", ['{"code":105}', "{}", "{code:105}", '{"code":105,"opaque":null}'])
def test_a_header_without_opaque_cannot_be_answered_and_is_refused(header: str) -> None:
    """Java makes a number up, to which nobody listens."""
    with pytest.raises(HeaderError, match="opaque"):
        read(header)


@pytest.mark.parametrize("fields", ['"text"', "[1]", "5", "true"])
def test_custom_fields_that_are_no_object_are_refused_when_they_are_read(fields: str) -> None:
    command = read(f'{{"opaque":5,"extFields":{fields}}}')
    with pytest.raises(HeaderError):
        command.fields()
    with pytest.raises(HeaderError):
        command.header(AnyHeader)


class AnyHeader(Header, kw_only=True):
    """A header with one field of each kind."""

    text: str | None = None
    number: Int32 | None = None
    truth: bool | None = None


@pytest.mark.parametrize(
    "header",
    [
        b'{"opaque":1,"language":"\xff"}',
        b'{"opaque":1,"remark":"\xc3"}',
        b'{"\xff":1,"opaque":1}',
        b'{opaque:1,"remark":"\xff"}',
    ],
)
def test_a_header_that_is_not_utf_8_is_refused(header: bytes) -> None:
    with pytest.raises(HeaderError):
        decode_command(json_frame(header))


@pytest.mark.parametrize("fields", [b'{"text":"\xff"}', b'{"text":"a","number":["\xff"]}', b'{"\xff":1}'])
def test_custom_fields_that_are_not_utf_8_are_refused(fields: bytes) -> None:
    command = decode_command(json_frame(b'{"opaque":1,"extFields":%b}' % fields))
    with pytest.raises(HeaderError):
        command.fields()


@pytest.mark.parametrize("depth", [100, 900, 960, 990, 1_000, 5_000, 80_000])
@pytest.mark.parametrize("open_close", [(b"[", b"]"), (b'{"a":', b"}")])
def test_deep_nesting_is_read_or_refused_and_never_exhausts_the_stack(
    depth: int, open_close: tuple[bytes, bytes]
) -> None:
    """Whether it is read depends on how deep the caller stands; another exception must not come."""
    opening, closing = open_close
    value = opening * depth + b"1" + closing * depth
    for header in (
        b'{"opaque":1,"x":%b}',
        b'{"opaque":1,"extFields":{"a":%b}}',
        b"{opaque:1,extFields:{a:%b}}",
    ):
        try:
            command = decode_command(json_frame(header % value), max_header_bytes=2**24)
            command.header(AnyHeader)
            command.fields()
        except HeaderError:
            pass


def test_a_lone_surrogate_in_a_header_becomes_a_replacement_character() -> None:
    assert read('{"opaque":5,"remark":"a\\ud800b"}').remark == "a\ufffdb"
    assert read('{"opaque":5,"extFields":{"k":"\\udfff"}}').fields() == {"k": "\ufffd"}


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
def test_a_lone_surrogate_on_its_way_out_becomes_a_question_mark(kind: int) -> None:
    """As in Java; an answer that quotes odd input must not fail."""
    data = encode_command(1, 5, 0, {"k": "v\ud800"}, remark="r\udfff", serialize_type=kind)
    command = decode_command(frame_of(data))
    assert (command.remark, command.fields()) == ("r?", {"k": "v?"})


def test_a_header_over_its_limit_is_refused() -> None:
    frame = json_frame('{"opaque":5,"remark":"%s"}' % ("x" * 100))
    assert decode_command(frame, max_header_bytes=len(frame.header)).opaque == 5
    with pytest.raises(HeaderError, match="over the limit of 100"):
        decode_command(frame, max_header_bytes=100)


@pytest.mark.parametrize("kind", [2, 3, 127, 255])
def test_an_unknown_serialize_type_is_refused(kind: int) -> None:
    with pytest.raises(HeaderError, match=f"serialize type {kind}"):
        decode_command(Frame(kind, memoryview(b'{"opaque":5}'), memoryview(b"")))


@given(code=st.integers(min_value=-(2**31), max_value=2**31 - 1))
@example(code=200_050)
def test_a_binary_header_carries_the_low_16_bits_of_a_code(code: int) -> None:
    """POP_MESSAGE becomes 3442, as from a Java client."""
    command = decode_command(frame_of(encode_command(code, 1, 0, serialize_type=ROCKETMQ)))
    assert command.code & 0xFFFF == code & 0xFFFF
    assert -(2**15) <= command.code < 2**15


def test_an_empty_text_in_a_binary_header_is_none() -> None:
    data = encode_command(1, 5, 0, {"a": "", "b": None}, remark="", serialize_type=ROCKETMQ)
    command = decode_command(frame_of(data))
    assert (command.remark, command.fields()) == (None, {"a": None, "b": None})


def test_the_last_of_two_equal_keys_in_a_binary_header_wins() -> None:
    block = b"\x00\x01k\x00\x00\x00\x011" + b"\x00\x01k\x00\x00\x00\x012"
    raw = bytes(17) + len(block).to_bytes(4, "big") + block
    assert decode_command(Frame(ROCKETMQ, memoryview(raw), memoryview(b""))).fields() == {"k": "2"}


def test_an_unknown_language_byte_is_no_language() -> None:
    raw = b"\x00\x01\x63" + bytes(18)
    assert decode_command(Frame(ROCKETMQ, memoryview(raw), memoryview(b""))).language is None


def test_a_field_name_too_long_for_the_binary_layout_is_not_written() -> None:
    with pytest.raises(HeaderError, match="field name"):
        encode_command(1, 5, 0, {"k" * 40_000: "v"}, serialize_type=ROCKETMQ)


@settings(max_examples=500)
@given(
    kind=st.sampled_from([JSON, ROCKETMQ, 9]),
    raw=st.one_of(
        st.binary(max_size=80),
        st.text(alphabet="{}[]\",:'\\ \n-+.eE0123456789opaquecdxtFilsnrmk$/*", max_size=80).map(str.encode),
    ),
)
def test_arbitrary_bytes_are_read_or_refused_with_a_header_error(kind: int, raw: bytes) -> None:
    frame = Frame(kind, memoryview(raw), memoryview(b""))
    assert -(2**31) <= salvage_opaque(frame) < 2**31
    assert -(2**31) <= salvage_flag(frame) < 2**31
    try:
        command = decode_command(frame)
        command.fields()
        command.header(AnyHeader)
    except HeaderError:
        return
    assert isinstance(command.opaque, int)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
MEMBERS = ["code", "opaque", "flag", "version", "language", "remark", "extFields", "Opaque", "other"]


@settings(max_examples=300)
@given(members=st.dictionaries(st.sampled_from(MEMBERS), JSON_VALUES, max_size=6))
def test_the_plain_and_the_tolerant_reader_agree(members: dict[str, Any]) -> None:
    """A comment at the end makes no difference to what a header says."""
    text = msgspec.json.encode(members)

    def outcome(raw: bytes) -> object:
        try:
            command = decode_command(json_frame(raw))
            return msgspec.structs.replace(command, received_fields=dict(command.fields()))
        except HeaderError:
            return "refused"

    assert outcome(text) == outcome(text + b"/**/")


@pytest.mark.parametrize(
    ("header", "opaque", "flag"),
    [
        ('{"opaque":77,"code":', 77, 0),
        ("{opaque : -3, flag:'1', [[[", -3, 1),
        ('{"OPAQUE":"12","FLAG":"2"', 12, 2),
        ('{"code":1}', NO_OPAQUE, 0),
        ('{"opaque":9999999999}', NO_OPAQUE, 0),
        ("", NO_OPAQUE, 0),
    ],
)
def test_whom_to_tell_about_an_unreadable_header_is_found_where_possible(
    header: str, opaque: int, flag: int
) -> None:
    assert salvage_opaque(json_frame(header)) == opaque
    assert salvage_flag(json_frame(header)) == flag


def test_the_opaque_and_the_flag_of_an_unreadable_binary_header_are_found() -> None:
    data = encode_command(1, -77, ONEWAY_FLAG, {"a": "b"}, serialize_type=ROCKETMQ)
    whole = frame_of(data)
    cut = Frame(ROCKETMQ, whole.header[:14], whole.body)
    with pytest.raises(HeaderError):
        decode_command(cut)
    assert (salvage_opaque(cut), salvage_flag(cut)) == (-77, ONEWAY_FLAG)
    stump = Frame(ROCKETMQ, whole.header[:8], whole.body)
    assert (salvage_opaque(stump), salvage_flag(stump)) == (NO_OPAQUE, 0)
