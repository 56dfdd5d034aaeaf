"""Header schemas: one typed struct for each request; encoding, decoding and validation follow from it.

A header travels as a flat map of strings (`extFields`). Its struct says, field by field, the name on the
wire (the Python name in camel case unless `field(name=…)` says otherwise), the type, and whether it is
required (no default) or optional (`T | None = None`).

    @request_header(RequestCode.GET_KV_CONFIG)
    class GetKVConfigRequest(Header, kw_only=True):
        namespace: str
        key: str

Rules kept here:
- Reading follows Java: integers of 32 or 64 bits, in decimal digits with an optional sign, so that `007` and
  `+7` are numbers and `1.0` is none; `true` in any case is true and everything else false, apart from `1`,
  which the C++ client means as true; members that no field declares are ignored. Text that is no number, a
  value out of range and a required field that is missing raise `HeaderError` naming the field. The text
  `null` for an optional number or truth leaves it out; so does Java with a number, once it has complained in
  its log.
- A client may send numbers where strings belong; their literal text counts.
- The one-pass reader accepts no text that the exact one refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from cometmq.model.errors import HeaderError
from cometmq.wire.json import fastjson

if TYPE_CHECKING:
    Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
    Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
else:
    # Left alone, msgspec reads `1.0` and `1e2` as integers. With a float in the union it reads them as
    # floats, and no float satisfies this one. That costs nothing, unlike checking each text.
    _NO_FLOAT = Annotated[float, Meta(gt=1e308, lt=-1e308)]
    Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | _NO_FLOAT
    Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | _NO_FLOAT


class Header(msgspec.Struct, kw_only=True, rename="camel", gc=False):
    """The base of every declared header."""


H = TypeVar("H", bound=Header)

REQUEST_HEADERS: Final[dict[int, type[Header]]] = {}
"""The declared header of each request code."""
RESPONSE_HEADERS: Final[dict[int, type[Header]]] = {}
"""The declared header of the answer to each request code."""

_decoders: dict[type[Header], msgspec.json.Decoder[Any]] = {}


def request_header(*codes: IntEnum) -> Callable[[type[H]], type[H]]:
    """Declare a struct as the header of requests with these codes."""
    return _declare(REQUEST_HEADERS, codes)


def response_header(*codes: IntEnum) -> Callable[[type[H]], type[H]]:
    """Declare a struct as the header of answers to requests with these codes."""
    return _declare(RESPONSE_HEADERS, codes)


def _declare(table: dict[int, type[Header]], codes: tuple[IntEnum, ...]) -> Callable[[type[H]], type[H]]:
    def declare(cls: type[H]) -> type[H]:
        for code in codes:
            other = table.setdefault(int(code), cls)
            if other is not cls:
                raise TypeError(f"{code.name} has two headers: {other.__name__} and {cls.__name__}")
        return cls

    return declare


def decode_json_header(cls: type[H], raw: bytes | memoryview | msgspec.Raw) -> H:
    """Read a header from the JSON text of `extFields` in one pass."""
    decoder = _decoders.get(cls)
    if decoder is None:
        decoder = _decoders[cls] = msgspec.json.Decoder(cls, strict=False)
    try:
        return decoder.decode(raw)  # type: ignore[no-any-return]
    except _UNREADABLE:
        return decode_fields(cls, read_json_fields(raw))


_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def read_json_fields(raw: bytes | memoryview | msgspec.Raw) -> dict[str, str | None]:
    """Returns the map of strings in the JSON text of `extFields`; other values become their literal text."""
    try:
        return _STRINGS.decode(raw)
    except _UNREADABLE:
        pass
    try:
        values = _RAWS.decode(raw) or {}
        return {key: _literal(value) for key, value in values.items()}
    except _UNREADABLE as error:
        raise HeaderError(f"extFields cannot be read: {error}") from None


_STRINGS: Final = msgspec.json.Decoder(dict[str, str | None])
_RAWS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | Literal[""] | None)


def _literal(raw: msgspec.Raw) -> str | None:
    text = str(memoryview(raw), "utf-8")
    if text == "null":
        return None
    if text[0] in "[{":  # written anew, as Java does, so that equal values are equal texts
        return fastjson.dumps(fastjson.loads(text, literal_numbers=True)).decode()
    return str(fastjson.loads(text)) if text[0] == '"' else text


def decode_fields(cls: type[H], fields: Mapping[str, str | None]) -> H:
    """Read a header from a map of strings."""
    present: Mapping[str, Any] = fields
    if None in fields.values():
        present = {key: value for key, value in fields.items() if value is not None}
    try:
        return msgspec.convert(present, cls, strict=False)
    except msgspec.ValidationError:
        pass
    try:  # once more with the spellings that only Java takes
        return msgspec.convert(_as_java_reads(cls, present), cls, strict=False)
    except msgspec.ValidationError as error:
        raise HeaderError(_explain(cls, error)) from None


_INTEGER = re.compile(r"[-+]?\d{1,400}")


def _as_java_reads(cls: type[Header], fields: Mapping[str, str]) -> dict[str, Any]:
    read: dict[str, Any] = dict(fields)
    for info in msgspec.structs.fields(cls):
        name = info.encode_name
        text = fields.get(name)
        kinds = _plain_types(info.type)
        if text is None or str in kinds:
            continue
        if NoneType in kinds and text.lower() == "null":
            read[name] = None
        elif bool in kinds:
            read[name] = text.lower() in ("true", "1")
        elif _INTEGER.fullmatch(text):
            read[name] = int(text)
        else:
            raise HeaderError(f"{cls.__name__}: {name} has to be an integer, and is {text[:40]!r}")
    return read


def _plain_types(annotation: Any) -> set[Any]:
    """Returns the types in an annotation, without unions and `Annotated`."""
    arguments = getattr(annotation, "__metadata__", None)
    if arguments is not None:
        return _plain_types(annotation.__origin__)
    parts = getattr(annotation, "__args__", None)
    if parts is None or isinstance(annotation, type):
        return {annotation}
    return set().union(*(_plain_types(part) for part in parts))


def _explain(cls: type[Header], error: msgspec.ValidationError) -> str:
    text = str(error).replace("Object missing required field", "the request lacks its field")
    return f"{cls.__name__}: {text}"


# Writing.

Fields = Header | Mapping[str, str | None]
"""Custom fields to write: their declared struct, or plain names and texts."""


class _Writer(msgspec.Struct, frozen=True):
    """Writes the headers of one struct.

    A second struct has the same fields as texts, which the JSON encoder writes in one call. The conversion
    is compiled from the declaration at first use: several times quicker than a loop over the fields.
    """

    texts_of: Callable[[Any], msgspec.Struct]
    names: tuple[str, ...]


_writers: Final[dict[type, _Writer]] = {}


def encode_fields(header: Header) -> dict[str, str]:
    """Returns the map of strings of a header, without fields that are None."""
    writer = _writers.get(header.__class__) or _make_writer(header.__class__)
    texts = msgspec.structs.astuple(writer.texts_of(header))
    return {name: text for name, text in zip(writer.names, texts, strict=True) if text is not None}


def json_fields(fields: Fields) -> msgspec.Struct | Mapping[str, str | None]:
    """Returns an object that the JSON encoder writes as `encode_fields` of it."""
    writer = _writers.get(fields.__class__)
    if writer is None:
        if not isinstance(fields, Header):
            return fields
        writer = _make_writer(fields.__class__)
    return writer.texts_of(fields)


def _make_writer(cls: type[Header]) -> _Writer:
    always: list[Any] = []  # these come first, because a struct wants it so
    sometimes: list[Any] = []
    texts: dict[str, str] = {}
    for info in msgspec.structs.fields(cls):
        kinds = _plain_types(info.type)
        value = f"header.{info.name}"
        text = value if str in kinds else f"truths[{value}]" if bool in kinds else f"str({value})"
        if NoneType in kinds:
            text = text if str in kinds else f"None if {value} is None else {text}"
            sometimes += [(info.name, str | None, msgspec.field(name=info.encode_name, default=None))]
        else:
            always += [(info.name, str, msgspec.field(name=info.encode_name))]
        texts[info.name] = text
    members = always + sometimes
    made = msgspec.defstruct(f"{cls.__name__}Texts", members, omit_defaults=True, gc=False)
    # For example: lambda header: made(header.topic, str(header.queue_id), truths[header.order])
    source = f"lambda header: made({', '.join(texts[name] for name, *_ in members)})"
    texts_of: Callable[[Any], msgspec.Struct] = eval(source, {"made": made, "truths": ("false", "true")})
    writer = _writers[cls] = _Writer(texts_of, made.__struct_encode_fields__)
    return writer
