"""Messages: made by an application (`Message`), or stored by a broker (`StoredMessage`).

Rules kept here:
- Both are frozen values. A message that cannot be sent is refused when it is made.
- Properties of the system have fields of their own; `properties` of a `Message` are the application's alone.
- A `StoredMessage` keeps every property exactly as stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple

import msgspec

from cometmq.model import message_properties as names
from cometmq.model import times
from cometmq.model.errors import MessageError
from cometmq.model.queue import MessageQueue
from cometmq.model.sysflag import TransactionType, transaction_type

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    V = TypeVar("V", default=bytes)
    """The type of a message's value: bytes, unless a serializer says otherwise."""
else:
    from typing import TypeVar

    V = TypeVar("V")

_INT32_MIN = -(2**31)
_INT32_MAX = 2**31 - 1


class Host(NamedTuple):
    """The address of a client or broker in a message."""

    ip: str
    port: int

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


class Message(msgspec.Struct, frozen=True):
    """A message to be sent.

    At most one of `delay_level`, `delay_ms` and `deliver_at_ms` is set: the broker's numbered level, a delay
    in milliseconds, or a point in time in milliseconds since 1970. Messages with the same `sharding_key` stay
    in order.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = {}
    flag: int = 0
    delay_level: int = 0
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    sharding_key: str | None = None
    wait_store_ok: bool = True

    def __post_init__(self) -> None:
        names.check_text("a topic", self.topic)
        body, keys, properties = _checked_body(self.body), _checked_keys(self.keys), dict(self.properties)
        if self.tags is not None:
            names.check_text("the tag", self.tags)
        if self.sharding_key is not None:
            names.check_text("the sharding key", self.sharding_key)
        for name, value in properties.items():
            names.check_user_property(name, value)
        if not _INT32_MIN <= self.flag <= _INT32_MAX:
            raise MessageError(f"flag {self.flag} does not fit in 32 bits")
        self._check_delay()
        # Copies, so that nothing the caller still holds can change a message that was already checked.
        msgspec.structs.force_setattr(self, "body", body)
        msgspec.structs.force_setattr(self, "keys", keys)
        msgspec.structs.force_setattr(self, "properties", properties)

    def _check_delay(self) -> None:
        level, delay_ms, deliver_at_ms = self.delay_level, self.delay_ms, self.deliver_at_ms
        if level == 0 and delay_ms is None and deliver_at_ms is None:
            return
        if (level != 0) + (delay_ms is not None) + (deliver_at_ms is not None) > 1:
            raise MessageError("set only one of delay_level, delay_ms and deliver_at_ms")
        fault: str | None
        if delay_ms is not None:
            fault = times.delay_fault("delay_ms", delay_ms)
        elif deliver_at_ms is not None:
            fault = times.delivery_time_fault("deliver_at_ms", deliver_at_ms)
        else:
            fault = times.level_fault("delay_level", level)
        if fault is not None:
            raise MessageError(fault)

    @property
    def is_delayed(self) -> bool:
        """Whether brokers deliver it later than it is sent."""
        return bool(self.delay_level) or self.delay_ms is not None or self.deliver_at_ms is not None

    def all_properties(self) -> dict[str, str]:
        """Returns the properties as sent: the application's and those of the fields."""
        merged = dict(self.properties)
        if self.keys:
            merged[names.KEYS] = names.KEY_SEPARATOR.join(self.keys)
        if self.tags is not None:
            merged[names.TAGS] = self.tags
        if self.sharding_key is not None:
            merged[names.SHARDING_KEY] = self.sharding_key
        if self.delay_level:
            merged[names.DELAY] = str(self.delay_level)
        if self.delay_ms is not None:
            merged[names.TIMER_DELAY_MS] = str(self.delay_ms)
        if self.deliver_at_ms is not None:
            merged[names.TIMER_DELIVER_MS] = str(self.deliver_at_ms)
        # Always written, because Java's constructor does and batches compare it.
        merged[names.WAIT] = "true" if self.wait_store_ok else "false"
        return merged


def _checked_body(body: bytes) -> bytes:
    if isinstance(body, bytes):
        return body
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise MessageError(f"a body is bytes, not {type(body).__name__}; encode it first")


def _checked_keys(keys: Sequence[str]) -> tuple[str, ...]:
    if isinstance(keys, str):
        raise MessageError(f"keys is a list of strings; write keys=[{keys!r}]")
    checked = tuple(keys)
    for key in checked:
        names.check_text("a key", key)
        if names.KEY_SEPARATOR in key:
            raise MessageError(
                f"key {key!r} contains a blank, which separates keys; use two keys or another character"
            )
    return checked


class StoredMessage(msgspec.Struct, Generic[V], frozen=True, kw_only=True):
    """A message as a broker stored it and a reader received it."""

    topic: str
    body: bytes
    properties: Mapping[str, str]
    broker_name: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    store_size: int
    body_crc: int
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: Host
    store_timestamp_ms: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    offset_msg_id: str

    @property
    def value(self) -> V:
        """The value that the consumer's serializer decodes; without one, the body.

        Raises `MessageError` if the body cannot be decoded.
        """
        return self.body  # type: ignore[return-value]  # bytes, without a serializer

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    @property
    def msg_id(self) -> str:
        """The unique id of the producer, or else the offset id."""
        return self.properties.get(names.UNIQ_KEY) or self.offset_msg_id

    @property
    def tags(self) -> str | None:
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(filter(None, self.properties.get(names.KEYS, "").split(names.KEY_SEPARATOR)))

    @property
    def sharding_key(self) -> str | None:
        return self.properties.get(names.SHARDING_KEY)

    @property
    def transaction_type(self) -> TransactionType:
        return transaction_type(self.sys_flag)

    @property
    def user_properties(self) -> dict[str, str]:
        """The application's own properties."""
        return {name: value for name, value in self.properties.items() if name not in names.RESERVED}
