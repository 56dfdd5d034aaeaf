"""The declared headers carry what Java's header classes carry, and read what Java wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import inspect

from cometmq.model.errors import HeaderError
from cometmq.wire.codes import RequestCode
from cometmq.wire.header.schema import (
    Header,
    decode_fields,
    decode_json_header,
    encode_fields,
    json_fields,
)
from cometmq.wire.headers import common
from cometmq.wire.headers.send import SendMessageRequest, SendMessageRequestV2
from cometmq.wire.headers.topic import CreateTopicRequest
from tests.all_headers import HEADER_MODULES, REQUEST_HEADERS, RESPONSE_HEADERS

DATA = Path(__file__).parents[3] / "data"

# Java classes that no request between products carries.
NOT_DECLARED: Final = {
    "BrokerCloseChannelRequest": "an entry in the log that Java controllers keep among themselves",
    "CheckNotActiveBrokerRequest": "an entry in the log that Java controllers keep among themselves",
    "GetBrokerLiveInfoRequest": "an entry in the log that Java controllers keep among themselves",
    "GetSyncStateDataRequest": "an entry in the log that Java controllers keep among themselves",
    "RaftBrokerHeartBeatEventRequest": "an entry in the log that Java controllers keep among themselves",
    "InitConsumerOffsetRequest": "no request code uses it",
    "RegisterOrderTopicRequest": "no request code uses it",
    "StatisticsMessagesRequest": "no request code uses it",
}
# Fields that Java wants and a client leaves out.
RELAXED: Final = {("CreateTopicRequest", "order"): "the C++ client does not send it; Java then takes false"}
# Keys that travel beside the fields of the Java class, or that came after 5.3.3.
ADDED: Final = {
    "RegisterBrokerRequest": {"__ZONE_NAME": "plain key", "__ZONE_MODE": "plain key"},
    "GetRouteInfoRequest": {"__ZONE_NAME": "plain key", "__ZONE_MODE": "plain key"},
    "SendMessageResponse": {"MSG_REGION": "plain key", "TRACE_ON": "plain key"},
    "QueryMessageRequest": {"_UNIQUE_KEY_QUERY": "plain key"},
    "PullMessageRequest": {"bulk": "our own"},
    "HeartbeatResponse": {"IS_SUPPORT_HEART_BEAT_V2": "plain key", "IS_SUB_CHANGE": "plain key"},
    "SetCommitLogReadModeRequest": {"READ_AHEAD_MODE": "plain key"},
    "GetAllTopicConfigRequest": {"topicSeq": "5.3.4", "dataVersion": "5.3.4", "maxTopicNum": "5.3.4"},
    "GetAllTopicConfigResponse": {"totalTopicNum": "5.3.4"},
    "GetAllSubscriptionGroupRequest": {"groupSeq": "5.3.4", "dataVersion": "5.3.4", "maxGroupNum": "5.3.4"},
    "GetAllSubscriptionGroupResponse": {"totalGroupNum": "5.3.4"},
}
# Java names one code for a class; these requests use it too.
SAME_HEADER: Final = {
    RequestCode.SEND_REPLY_MESSAGE: RequestCode.SEND_MESSAGE,
    RequestCode.SEND_BATCH_MESSAGE: RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_REPLY_MESSAGE_V2: RequestCode.SEND_MESSAGE_V2,
    RequestCode.LITE_PULL_MESSAGE: RequestCode.PULL_MESSAGE,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: RequestCode.UPDATE_AND_CREATE_TOPIC,
}
# Keys of recorded requests that no header declares.
UNDECLARED_KEYS: Final = {"ReqT": "the Java client's note to a proxy"}

# Parts of a field's type that are no wire type of their own; no value satisfies the float of an integer.
NEVER_READ: Final = (inspect.NoneType, inspect.FloatType)

WIRE_TYPES: Final = {
    "java.lang.String": "text",
    "java.lang.Integer": "int32",
    "int": "int32",
    "java.lang.Long": "int64",
    "long": "int64",
    "java.lang.Boolean": "bool",
    "boolean": "bool",
    "org.apache.rocketmq.common.BoundaryType": "text",  # travels as its name
}


class JavaField(msgspec.Struct):
    """A field of a Java header class."""

    type: str
    required: bool
    default: str | None = None


class JavaHeader(msgspec.Struct):
    """A Java header class."""

    fields: dict[str, JavaField]
    request: int | None = None
    abstract: bool = False


class JavaHeaders(msgspec.Struct):
    """The part of `header-classes.json` that is about headers."""

    headers: dict[str, JavaHeader]


class Recorded(msgspec.Struct, rename="camel"):
    """What Java read in a recorded frame."""

    code: int
    ext_fields: dict[str, str | None] | None = None


class Frame(msgspec.Struct):
    """A recorded frame."""

    id: str
    request: str
    kind: str
    decoded: Recorded

    @property
    def fields(self) -> dict[str, str | None]:
        return self.decoded.ext_fields or {}


def _java_headers() -> dict[str, JavaHeader]:
    facts = msgspec.json.decode((DATA / "header-classes.json").read_bytes(), type=JavaHeaders)
    return {name.rpartition(".")[2].replace("Header", ""): java for name, java in facts.headers.items()}


def _structs() -> dict[str, type[Header]]:
    members = (member for module in HEADER_MODULES for member in vars(module).values())
    return {
        member.__name__: member
        for member in members
        if isinstance(member, type) and issubclass(member, Header) and member is not Header
    }


JAVA = _java_headers()
STRUCTS = _structs()
DECLARED = sorted(name for name in STRUCTS if name not in vars(common))
FRAMES = [msgspec.json.decode(line, type=Frame) for line in (DATA / "frames.jsonl").read_text().splitlines()]
REQUESTS = [
    frame for frame in FRAMES if frame.kind != "response" and frame.request in RequestCode.__members__
]
ANSWERS = [frame for frame in FRAMES if frame.kind == "response" and frame.fields]


def _fields(cls: type[Header]) -> dict[str, inspect.Field]:
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    return {field.encode_name: field for field in info.fields}


def _wire_type(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.UnionType):
        (kind,) = (part for part in kind.types if not isinstance(part, NEVER_READ))
    if isinstance(kind, inspect.IntType):
        assert kind.le is not None
        assert kind.ge == -kind.le - 1
        return f"int{kind.le.bit_length() + 1}"
    return {inspect.StrType: "text", inspect.BoolType: "bool"}[type(kind)]


def _java_default(field: JavaField) -> str | int | bool | None:
    if field.default is None or WIRE_TYPES[field.type] == "text":
        return field.default
    return field.default == "true" if WIRE_TYPES[field.type] == "bool" else int(field.default)


def test_every_java_header_with_fields_has_a_struct() -> None:
    """A class that carries nothing needs none."""
    missing = {
        name for name, java in JAVA.items() if java.fields and name not in STRUCTS and not java.abstract
    }
    assert missing == NOT_DECLARED.keys()


@pytest.mark.parametrize("name", DECLARED)
def test_a_struct_has_the_wire_names_of_its_java_class(name: str) -> None:
    java = JAVA[name].fields.keys() if name in JAVA else set()
    assert _fields(STRUCTS[name]).keys() == java | ADDED.get(name, {}).keys()


@pytest.mark.parametrize("name", sorted(JAVA.keys() & STRUCTS.keys()))
def test_a_field_has_the_type_the_need_and_the_default_of_java(name: str) -> None:
    declared = _fields(STRUCTS[name])
    for wire_name, java in JAVA[name].fields.items():
        field = declared[wire_name]
        required = java.required and (name, wire_name) not in RELAXED
        assert _wire_type(field.type) == WIRE_TYPES[java.type], wire_name
        assert field.required == required, wire_name
        if not required:
            assert field.default == _java_default(java), wire_name


def test_a_key_beside_the_java_fields_is_optional() -> None:
    for name, keys in ADDED.items():
        fields = _fields(STRUCTS[name])
        assert all(not fields[key].required and fields[key].default is None for key in keys), name


def test_a_struct_belongs_to_the_request_code_that_java_gives_it() -> None:
    for name, java in JAVA.items():
        if java.request is not None and name in STRUCTS:
            table = RESPONSE_HEADERS if name.endswith("Response") else REQUEST_HEADERS
            assert table[java.request] is STRUCTS[name], name


@pytest.mark.parametrize(("code", "like"), SAME_HEADER.items())
def test_requests_of_the_same_shape_share_their_header(code: RequestCode, like: RequestCode) -> None:
    assert REQUEST_HEADERS[code] is REQUEST_HEADERS[like]
    assert RESPONSE_HEADERS.get(code) is RESPONSE_HEADERS.get(like)


def test_every_struct_belongs_to_a_request_code() -> None:
    reachable = {cls.__name__ for cls in (*REQUEST_HEADERS.values(), *RESPONSE_HEADERS.values())}
    assert sorted(reachable) == DECLARED


def test_every_struct_says_what_it_is_for() -> None:
    assert [name for name in DECLARED if not STRUCTS[name].__doc__] == []


@pytest.mark.parametrize("frame", REQUESTS, ids=lambda frame: f"{frame.id}-{frame.request}")
def test_a_recorded_request_is_read_and_written_as_java_does(frame: Frame) -> None:
    """A Java peer sent it; only keys that are listed here as undeclared are passed over."""
    assert frame.decoded.code == RequestCode[frame.request]
    _read_and_write(REQUEST_HEADERS.get(frame.decoded.code), frame)


@pytest.mark.parametrize("frame", ANSWERS, ids=lambda frame: f"{frame.id}-{frame.request}")
def test_a_recorded_answer_is_read_and_written_as_java_does(frame: Frame) -> None:
    _read_and_write(RESPONSE_HEADERS.get(RequestCode[frame.request]), frame)


def _read_and_write(cls: type[Header] | None, frame: Frame) -> None:
    declared = _fields(cls).keys() if cls else set()
    assert frame.fields.keys() - declared <= UNDECLARED_KEYS.keys()
    if cls is not None:
        header = decode_fields(cls, frame.fields)
        assert decode_json_header(cls, msgspec.json.encode(frame.fields)) == header
        written = {key: text for key, text in frame.fields.items() if key in declared and text is not None}
        assert encode_fields(header) == written


def test_the_recording_leaves_out_nothing_but_a_code_that_was_cut_to_16_bits() -> None:
    """A binary header has no room for POP_MESSAGE, so that Java sends another number."""
    unknown = {frame.request for frame in FRAMES} - RequestCode.__members__.keys()
    assert unknown == {str(RequestCode.POP_MESSAGE & 0xFFFF)}


def test_the_cpp_client_may_leave_out_whether_a_topic_is_ordered() -> None:
    fields = {
        "topic": "orders",
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
    }
    assert decode_fields(CreateTopicRequest, fields).order is False


def test_both_forms_of_a_send_read_the_same() -> None:
    """One handler serves SEND_MESSAGE and SEND_MESSAGE_V2."""
    long, short = SendMessageRequest, SendMessageRequestV2
    assert set(short.__struct_fields__) - set(long.__struct_fields__) == {"broker_name"}
    assert set(long.__struct_fields__) <= set(short.__struct_fields__)


def _values(kind: inspect.Type) -> st.SearchStrategy[Any]:
    if isinstance(kind, inspect.UnionType):
        return st.one_of(*(_values(part) for part in kind.types if not isinstance(part, inspect.FloatType)))
    if isinstance(kind, inspect.IntType):
        return st.integers(min_value=kind.ge, max_value=kind.le)
    return {
        inspect.StrType: st.text(),
        inspect.BoolType: st.booleans(),
        inspect.NoneType: st.none(),
    }[type(kind)]


def _any_header(cls: type[Header]) -> st.SearchStrategy[Header]:
    return st.builds(cls, **{field.name: _values(field.type) for field in _fields(cls).values()})


ANY_STRUCT = st.sampled_from([STRUCTS[name] for name in DECLARED])
# Texts that come near to numbers and booleans find more than texts of any kind.
ANY_TEXT = st.one_of(
    st.text(),
    st.integers().map(str),
    st.floats().map(str),
    st.text(alphabet="0123456789+-.eE_ ", max_size=24),
    st.sampled_from(["true", "TRUE", "false", "null", "", "1", "0", "NaN", "Infinity"]),
)
ANY_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), ANY_TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=5,
)


def _maps(cls: type[Header], values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Maps with the names that the header declares, some of them or all, and others."""
    names = sorted(_fields(cls))
    every = st.fixed_dictionaries(dict.fromkeys(names, values))
    some = st.dictionaries(st.one_of(st.sampled_from(names), st.text()), values) if names else st.just({})
    return st.one_of(every, some)


@pytest.mark.parametrize("name", DECLARED)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_a_header_with_any_values_comes_back_as_it_was(name: str, data: st.DataObject) -> None:
    cls = STRUCTS[name]
    header = data.draw(_any_header(cls))
    fields = encode_fields(header)
    assert all(type(value) is str for value in fields.values())
    assert decode_fields(cls, fields) == header
    assert decode_json_header(cls, msgspec.json.encode(fields)) == header
    assert msgspec.json.decode(msgspec.json.encode(json_fields(header))) == fields


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_map_of_any_texts_is_read_or_refused_with_a_header_error(data: st.DataObject) -> None:
    cls = data.draw(ANY_STRUCT)
    fields = data.draw(_maps(cls, st.one_of(st.none(), ANY_TEXT)))
    try:
        header = decode_fields(cls, fields)
    except HeaderError:
        return
    assert decode_fields(cls, encode_fields(header)) == header


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_json_is_read_or_refused_with_a_header_error(data: st.DataObject) -> None:
    """A client may send numbers, booleans, nulls, lists and objects where texts belong."""
    cls = data.draw(ANY_STRUCT)
    raw = msgspec.json.encode(data.draw(st.one_of(_maps(cls, ANY_JSON), ANY_JSON)))
    try:
        header = decode_json_header(cls, raw)
    except HeaderError:
        return
    assert decode_fields(cls, encode_fields(header)) == header
