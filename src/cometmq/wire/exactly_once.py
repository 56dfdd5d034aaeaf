"""Exactly-once sends: CometMQ's own requests to store messages once, however often they are tried.

A writer numbers its messages in a *writer sequence*: one for each query, topic and partition of the query. In
it the query's batches follow one another, and each batch numbers its messages from 0. Every stored message
has the position of its request in the property `__ONCE`, so the log alone says how far each sequence is.

Rules kept here:
- The codes lie above all of Apache's. A broker that does not know them answers REQUEST_CODE_NOT_SUPPORTED,
  which is how a writer finds out, before it has sent anything.
- A digest is the CRC-32 of the encoded messages of the batch from the first one on. It shows that a writer
  that tries again has the same messages in the same order.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

import msgspec

from cometmq.model.message_properties import ONCE
from cometmq.wire.header.schema import Header, Int32, Int64
from cometmq.wire.record.batch import item_ends

UNKNOWN_DIGEST: Final = -1
"""The digest of a request that a crash cut in two."""
NO_BATCH: Final = -1

_VALUE: Final = re.compile(r"(.+):(\d{1,18}):(\d{1,9}):(\d{1,18}):(\d{1,9}):(\d{1,10}):(\d{1,9})")


class OwnRequestCode(IntEnum):
    """Requests that only brokers of this project answer."""

    GET_STANDING = 900_001
    SEND_ONCE = 900_002
    SEND_RECORDS = 900_003


class StandingRequest(Header, kw_only=True):
    """Ask how far a writer sequence is."""

    topic: str
    query: str
    partition: Int32


class StandingResponse(Header, kw_only=True):
    """How far a writer sequence is."""

    batch: Int64
    """The last batch of which something is stored; `NO_BATCH` if there is none."""
    next_sequence: Int64
    """The number of its stored messages, which is the number of the next one."""
    digest: Int64
    shards: Int32
    """The number of queues for messages with a sharding key."""


class SendOnceRequest(Header, kw_only=True):
    """Store messages of a writer sequence, unless they are stored already."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    born_timestamp: Int64
    query: str
    partition: Int32
    batch: Int64
    first_sequence: Int64
    count: Int32
    digest_before: Int64
    digest_after: Int64
    shards: Int32
    properties: str | None = None
    single: bool = False
    """Whether the body is that of one message with these properties; otherwise it is a batch."""


class SendOnceResponse(StandingResponse, kw_only=True):
    """How far the sequence is now; `stored` is 0 if everything was stored before."""

    stored: Int32


class OnceStep(msgspec.Struct, frozen=True, gc=False):
    """The position of a request in its writer sequence."""

    query: str
    batch: int
    partition: int
    first: int
    count: int
    digest: int
    """Of all messages of the batch up to the last of these."""
    shards: int

    @property
    def end(self) -> int:
        """The number after the last message."""
        return self.first + self.count

    def value(self) -> str:
        numbers = (self.batch, self.partition, self.first, self.count, self.digest, self.shards)
        return ":".join((self.query, *map(str, numbers)))


def read_step(value: str) -> OnceStep | None:
    """Returns the step in a property; None if it has another form."""
    match = _VALUE.fullmatch(value)
    if match is None:
        return None
    batch, partition, first, count, digest, shards = map(int, match.groups()[1:])
    return OnceStep(match[1], batch, partition, first, count, digest, shards)


def without_first(body: bytes | bytearray | memoryview, count: int) -> tuple[memoryview, memoryview]:
    """Returns the body of a batch, cut after its first `count` messages; raises `ProtocolError`."""
    view = memoryview(body)
    ends = item_ends(view)
    at = ends[count - 1] if count else 0
    return view[:at], view[at:]


ONCE_MARKER: Final = f"{ONCE}\x01".encode()
"""The bytes in a record that has the property."""
