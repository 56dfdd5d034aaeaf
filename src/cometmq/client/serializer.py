"""Serializers: values of the application as bodies of messages.

Rules kept here:
- A producer with a serializer encodes when a message is made; a value that cannot be encoded is refused
  there. A consumer decodes when `message.value` is read, so that one bad body does not stop a whole poll.
- A body that cannot be decoded raises `MessageError` at `message.value`. In a listener that does not catch
  it, the message is delivered again and in the end becomes a dead letter.
- Without a serializer, values are the bodies themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, cast

import msgspec

from cometmq.model.errors import ClientError, MessageError
from cometmq.model.message import StoredMessage, V

if TYPE_CHECKING:
    from collections.abc import Callable

_FIELDS: Final = StoredMessage.__struct_fields__


class Serializer(Protocol[V]):
    """Encodes values as bodies of messages, and decodes them. Both raise what they like."""

    def encode(self, value: V) -> bytes:
        """The body of a value."""

    def decode(self, body: bytes) -> V:
        """The value of a body."""


class _Json(Generic[V]):
    """JSON of one type, by msgspec or by the pydantic model itself."""

    def __init__(self, kind: type[V]) -> None:
        self._kind = kind
        self.encode: Callable[[V], bytes]
        self.decode: Callable[[bytes], V]
        if hasattr(kind, "model_validate_json"):  # a pydantic model
            self.encode = lambda value: cast(Any, value).model_dump_json(by_alias=True).encode()
            self.decode = cast(Any, kind).model_validate_json
        else:
            self.encode = msgspec.json.Encoder().encode
            self.decode = msgspec.json.Decoder(kind).decode

    def __repr__(self) -> str:
        return f"JSON of {getattr(self._kind, '__name__', self._kind)}"


def json_serializer(kind: type[V]) -> Serializer[V]:
    """A serializer for JSON of a type: a msgspec struct, dataclass, TypedDict, pydantic model, `dict`, …

    Decoding checks the body against the type.
    """
    if kind is bytes:
        raise ClientError("bytes are bodies as they are; leave the serializer out")
    try:
        return _Json(kind)
    except TypeError as error:
        raise ClientError(f"{kind!r} cannot be read from JSON: {error}") from error


def encoded(serializer: Serializer[V] | None, value: V) -> bytes:
    """The body of a value."""
    if serializer is None:
        return value  # type: ignore[return-value]  # bytes; a message refuses anything else
    try:
        return serializer.encode(value)
    except Exception as error:
        raise MessageError(
            f"a value of type {type(value).__name__} cannot be encoded by {serializer!r}: {error}"
        ) from error


class _ValueMessage(StoredMessage[V], frozen=True, kw_only=True):
    """A message whose value a serializer decodes, once."""

    serializer: Any
    decoded: Any = msgspec.UNSET

    @property
    def value(self) -> V:
        if self.decoded is msgspec.UNSET:
            try:
                value = self.serializer.decode(self.body)
            except Exception as error:
                raise MessageError(
                    f"the body of message {self.msg_id} in topic {self.topic} cannot be decoded by "
                    f"{self.serializer!r}: {error}; catch this, or it is retried and in the end a dead letter"
                ) from error
            msgspec.structs.force_setattr(self, "decoded", value)
        return cast(V, self.decoded)


def with_value(message: StoredMessage[Any], serializer: Serializer[V]) -> StoredMessage[V]:
    """The message with values by a serializer."""
    fields = {name: getattr(message, name) for name in _FIELDS}
    return _ValueMessage(**fields, serializer=serializer)
