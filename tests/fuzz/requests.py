"""Requests made from the declarations: every code that a server handles, its fields at their limits.

The same seed and number give the same request. The other fields of a request are plausible,
so that its handler
gets past the first check. A code gets into this generator by being handled: nothing has to be added here.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from cometmq.broker.handlers import HANDLERS as BROKER_HANDLERS
from cometmq.broker.handlers.pull import READS
from cometmq.client.instance.broker_requests import BrokerRequests
from cometmq.model.errors import HeaderError
from cometmq.namesrv.handlers import HANDLERS as NAMESRV_HANDLERS
from cometmq.wire.codes import CURRENT, RequestCode
from cometmq.wire.exactly_once import OwnRequestCode
from cometmq.wire.frame.command import ONEWAY_FLAG, encode_command
from cometmq.wire.frame.framing import JSON, ROCKETMQ, pack_head
from cometmq.wire.header.schema import REQUEST_HEADERS, Header
from tests.fuzz.bodies import Bodies
from tests.fuzz.odd_values import in_place, json_text, odd_boolean, odd_json_value, odd_name, odd_number
from tests.fuzz.plausible import Plausible

MAY_WAIT: Final = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.NOTIFICATION,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)
"""Requests that are answered when there is something to tell, or when a client has answered."""

FREQUENT: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.HEART_BEAT,
        RequestCode.END_TRANSACTION,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.REGISTER_BROKER,
    }
)
"""Requests that come more often than others: they fill the store, and most can go wrong in them."""


class Field(NamedTuple):
    """A field of a header."""

    name: str
    wire_name: str
    kind: type
    is_required: bool


class Code(NamedTuple):
    """A request code with the fields of its header."""

    number: int
    fields: tuple[Field, ...]

    @property
    def name(self) -> str:
        return code_name(self.number)


class Request(NamedTuple):
    """One request as bytes, and what is to be expected of it."""

    number: int
    code: int
    opaque: int
    data: bytes
    is_oneway: bool

    @property
    def may_wait(self) -> bool:
        return self.code in MAY_WAIT

    def __str__(self) -> str:
        shown = self.data if len(self.data) <= 1500 else self.data[:1500] + b"..."
        way = ", one-way" if self.is_oneway else ""
        return f"request {self.number} ({code_name(self.code)}{way}): {shown!r}"


def code_name(number: int) -> str:
    for kind in (RequestCode, OwnRequestCode):
        if number in kind.__members__.values():
            return kind(number).name
    return str(number)


def handled_codes(owners: Iterable[type], further: Iterable[tuple[int, type[Header]]] = ()) -> list[Code]:
    """Every code for which one of these classes has a method marked with `@handles`, and further ones."""
    found = {int(code): header for code, header in further}
    for owner in owners:
        for name in dir(owner):
            found.update(
                (int(code), header) for code, header in getattr(getattr(owner, name), "_handles", ())
            )
    return [Code(number, fields_of(header)) for number, header in sorted(found.items())]


def declared_codes() -> list[Code]:
    """Every code whose header is declared, whoever handles it."""
    return [Code(number, fields_of(header)) for number, header in sorted(REQUEST_HEADERS.items())]


def fields_of(header: type[Header]) -> tuple[Field, ...]:
    return tuple(
        Field(info.name, info.encode_name, _kind(info.type), info.required)
        for info in msgspec.structs.fields(header)
    )


def _kind(annotation: Any) -> type:
    """What a field is a text of: an integer, a truth, or just a text."""
    text = str(annotation)
    return bool if "bool" in text else int if "int" in text else str


BROKER_CODES: Final = handled_codes(BROKER_HANDLERS, ((code, header) for code, header, _ in READS))
NAMESRV_CODES: Final = handled_codes(NAMESRV_HANDLERS)
CLIENT_CODES: Final = handled_codes([BrokerRequests])


class RequestGenerator:
    """A source of requests to one kind of server."""

    def __init__(self, seed: int, codes: list[Code], plausible: Plausible, outside: str = "/nowhere") -> None:
        self._seed = seed
        self._codes = codes + [code for code in codes if code.number in FREQUENT] * 3
        self._others = declared_codes()
        self._plausible = plausible
        self._bodies = Bodies(plausible)
        self._outside = outside

    def request(self, number: int) -> Request:
        """The request of this number; its opaque is the number, too."""
        choice = random.Random(f"{self._seed}:{number}:request")
        code = choice.choice(self._codes if choice.random() < 0.98 else self._others)
        fields = self._fields(choice, code)
        body = self._bodies.body(choice, code.number)
        flag = ONEWAY_FLAG if choice.random() < 0.15 else 0
        data = _encoded(choice, code.number, number, flag, fields, body)
        return Request(number, code.number, number, data, bool(flag))

    def _fields(self, choice: random.Random, code: Code) -> dict[str, Any]:
        """Plausible values, some of them replaced by odd ones, some missing."""
        fields: dict[str, Any] = {}
        for field in code.fields:
            if field.is_required or choice.random() < 0.3:
                fields[field.wire_name] = self._plausible.value(choice, field.name, field.kind, code.number)
        if not code.fields:
            return fields if choice.random() < 0.8 else {odd_name(choice): odd_name(choice)}
        for _ in range(choice.choice((0, 1, 1, 1, 1, 2, 2, len(code.fields)))):
            field = choice.choice(code.fields)
            if choice.random() < 0.05:
                fields.pop(field.wire_name, None)
            else:
                fields[field.wire_name] = self._odd(choice, field.kind)
        return fields

    def _odd(self, choice: random.Random, kind: type) -> Any:
        if choice.random() < 0.05:
            return odd_json_value(choice)
        if kind is bool:
            return odd_boolean(choice)
        if kind is int:
            return odd_number(choice) if choice.random() < 0.9 else odd_name(choice)
        return in_place(odd_name(choice), self._outside)


def _encoded(
    choice: random.Random, code: int, opaque: int, flag: int, fields: dict[str, Any], body: bytes
) -> bytes:
    version = choice.choice((CURRENT, CURRENT, CURRENT, 0, 399, 2**31 - 1))
    if choice.random() < 0.3:
        try:
            texts = {name: str(value) for name, value in fields.items()}
            return encode_command(code, opaque, flag, texts, body=body, serialize_type=ROCKETMQ)
        except HeaderError:
            pass  # a name that is too long for this form
    header: dict[str, Any] = {"code": code, "flag": flag, "language": "JAVA", "opaque": opaque}
    header |= {"serializeTypeCurrentRPC": "JSON", "version": version}
    if fields or choice.random() < 0.5:
        header["extFields"] = fields
    text = json_text(header)
    return pack_head(JSON, text, len(body)) + body
