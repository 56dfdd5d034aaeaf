"""Pop bodies: checkpoints and acks in the revive topic, and the body of BATCH_ACK_MESSAGE.

Rules kept here:
- Members have Apache's names and order; members that older versions leave out have Java's default.
- A checkpoint stands for the messages of one pop from one queue, numbered from 0. Message i is at
  `start_offset + diffs[i]`, and bit i of `bits` says that it is acknowledged. Without diffs, as from older
  versions, the messages follow each other.
- Long member names are read where Java reads them.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import field

from cometmq.model.errors import HeaderError
from cometmq.model.java_numbers import LARGEST_LONG
from cometmq.wire.bodies.json_body import decode_json_body
from cometmq.wire.frame.command import Body
from cometmq.wire.json import fastjson

MAX_ACK_SPAN: Final = 65_536
"""The largest span of offsets in one batch of acks. A pop returns 32 messages from one read of a queue."""

Kind = TypeVar("Kind", bound=msgspec.Struct)

_BITS: Final = [tuple(bit for bit in range(8) if octet >> bit & 1) for octet in range(256)]
"""The bits that are set in each octet."""

_encode: Final = msgspec.json.Encoder(order="sorted").encode


class Checkpoint(msgspec.Struct, kw_only=True):
    """Popped messages, and until when they are invisible."""

    bits: int = field(name="bm", default=0)
    broker_name: str | None = field(name="bn", default=None)
    group: str | None = field(name="c", default=None)
    diffs: list[int] | None = field(name="d", default=None)
    invisible_ms: int = field(name="it", default=0)
    count: int = field(name="n", default=0)
    pop_time_ms: int = field(name="pt", default=0)
    queue_id: int = field(name="q", default=0)
    put_again: str | None = field(name="rp", default=None)
    """How often the checkpoint was written again because its messages could not be revived."""
    start_offset: int = field(name="so", default=0)
    topic: str | None = field(name="t", default=None)

    @property
    def revive_ms(self) -> int:
        return self.pop_time_ms + self.invisible_ms

    def offset_of(self, index: int) -> int:
        return self.start_offset + (self.diffs[index] if self.diffs else index)

    def index_of(self, offset: int) -> int:
        """Returns the number of the message at an offset; -1 if it is not in this checkpoint."""
        distance = offset - self.start_offset
        if not self.diffs:
            return distance if 0 <= distance < self.count else -1
        try:
            return self.diffs.index(distance)
        except ValueError:
            return -1


class Ack(msgspec.Struct, kw_only=True):
    """Acknowledged messages of a checkpoint."""

    offset: int = field(name="ao", default=0)
    offsets: list[int] | None = field(name="aol", default=None)
    """The offsets of a batch; `offset` is -1 then."""
    broker_name: str | None = field(name="bn", default=None)
    group: str | None = field(name="c", default=None)
    pop_time_ms: int = field(name="pt", default=0)
    queue_id: int = field(name="q", default=0)
    start_offset: int = field(name="so", default=0)
    topic: str | None = field(name="t", default=None)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    members = msgspec.to_builtins(checkpoint) | {"reviveTime": checkpoint.revive_ms, "ro": 0}
    if checkpoint.put_again is None:
        del members["rp"]
    return _encode(members)


def encode_ack(ack: Ack) -> bytes:
    members = msgspec.to_builtins(ack)
    for name in ("aol", "bn"):
        if members[name] is None:
            del members[name]
    return _encode(members)


def decode_checkpoint(body: Body) -> Checkpoint:
    checkpoint = decode_json_body(Checkpoint, body)
    diffs = checkpoint.diffs
    if not 0 <= checkpoint.count <= 127 or (diffs and len(diffs) < checkpoint.count):
        raise HeaderError(f"a checkpoint of {checkpoint.count} messages says where {len(diffs or ())} are")
    numbers = (
        checkpoint.pop_time_ms, checkpoint.invisible_ms, checkpoint.revive_ms,
        checkpoint.queue_id, checkpoint.start_offset, checkpoint.bits, *(diffs or ()),
    )  # fmt: skip
    if max(map(abs, numbers)) > LARGEST_LONG:
        raise HeaderError("a number of the checkpoint has over 64 bits")
    return checkpoint


_LONG_ACK_NAMES: Final = {
    "ackOffset": "ao",
    "ackOffsetList": "aol",
    "brokerName": "bn",
    "consumerGroup": "c",
    "popTime": "pt",
    "queueId": "q",
    "startOffset": "so",
    "topic": "t",
}


def decode_ack(body: Body) -> Ack:
    ack = decode_json_body(Ack, body)
    return ack if ack.topic is not None else _renamed(Ack, fastjson.loads(body), _LONG_ACK_NAMES)


# The request


class BatchAck(msgspec.Struct, kw_only=True):
    """Acks of messages of one pop from one queue."""

    group: str = field(name="c")
    topic: str = field(name="t")
    mark: str = field(name="r", default="0")
    start_offset: int = field(name="so", default=0)
    queue_id: int = field(name="q", default=0)
    revive_queue: int = field(name="rq", default=0)
    pop_time_ms: int = field(name="pt", default=0)
    invisible_ms: int = field(name="it", default=0)
    bit_set: str = field(name="b", default="")

    @property
    def offsets(self) -> list[int]:
        """The acknowledged offsets; raises `HeaderError`."""
        try:
            octets = b64decode(self.bit_set, validate=True).rstrip(b"\0")
        except (binascii.Error, ValueError):
            raise HeaderError(f"the bit set {self.bit_set[:40]!r} is not base64") from None
        if len(octets) * 8 > MAX_ACK_SPAN:
            raise HeaderError(f"a bit set of {len(octets) * 8} bits; {MAX_ACK_SPAN} are possible")
        starts = range(self.start_offset, self.start_offset + len(octets) * 8, 8)
        return [start + bit for start, octet in zip(starts, octets, strict=True) for bit in _BITS[octet]]


class BatchAckRequest(msgspec.Struct):
    acks: tuple[BatchAck, ...] = ()
    broker_name: str | None = field(name="brokerName", default=None)


_LONG_BATCH_NAMES: Final = {
    "consumerGroup": "c",
    "topic": "t",
    "retry": "r",
    "startOffset": "so",
    "queueId": "q",
    "reviveQueueId": "rq",
    "popTime": "pt",
    "invisibleTime": "it",
    "bitSet": "b",
}


def decode_batch_acks(body: Body) -> BatchAckRequest:
    try:
        return msgspec.json.decode(body, type=BatchAckRequest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    members = fastjson.loads(body)
    if not isinstance(members, dict):
        raise HeaderError("the body is no batch of acknowledgements")
    acks = members.get("acks") or ()
    if not isinstance(acks, Sequence) or isinstance(acks, str):
        raise HeaderError("the acknowledgements of a batch have to be a list")
    name = members.get("brokerName")
    return BatchAckRequest(
        tuple(_renamed(BatchAck, each, _LONG_BATCH_NAMES) for each in acks),
        None if name is None else str(name),
    )


def _renamed(kind: type[Kind], members: object, names: dict[str, str]) -> Kind:
    if not isinstance(members, dict):
        raise HeaderError(f"an acknowledgement has to be an object, and is {str(members)[:40]!r}")
    short = {names.get(key, key): value for key, value in members.items() if value is not None}
    try:
        return msgspec.convert(short, kind, strict=False)
    except msgspec.ValidationError as error:
        raise HeaderError(f"an acknowledgement cannot be read: {error}") from None
