"""Sends that are stored once, however often they are tried: requests of our own, which no other broker knows.

A writer numbers the messages that it has for one topic. Its numbers run in a *lane*: that of a query, a topic
and a partition of the query's work. In a lane the query's batches follow one another, and in each batch the
messages are numbered from 0. Every stored message carries, in the property `__ONCE`, where in its lane the
request that brought it stands; so the log alone says how far each lane is.

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
"""Where a stop of the machine cut a request in two, and nobody knows the digest of the half that is left."""
NO_BATCH: Final = -1

_VALUE: Final = re.compile(r"(.+):(\d{1,18}):(\d{1,9}):(\d{1,18}):(\d{1,9}):(\d{1,10}):(\d{1,9})")


class OwnRequestCode(IntEnum):
    """Requests that only brokers of this project answer."""

    GET_STANDING = 900_001
    SEND_ONCE = 900_002
    SEND_RECORDS = 900_003


class StandingRequest(Header, kw_only=True):
    """Ask how far a lane is."""

    topic: str
    query: str
    partition: Int32


class StandingResponse(Header, kw_only=True):
    """How far a lane is."""

    batch: Int64
    """The last batch of which something is stored; `NO_BATCH` if there is none."""
    next_sequence: Int64
    """How many messages of it are stored: the number of the next one."""
    digest: Int64
    shards: Int32
    """Over how many queues the writer spreads messages with a sharding key."""


class SendOnceRequest(Header, kw_only=True):
    """Store messages of a lane, unless they are stored already."""

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
    """Whether the body is that of one message, which has the properties; else it is that of a batch."""


class SendOnceResponse(StandingResponse, kw_only=True):
    """How far the lane is now; a request of which nothing was stored because it is there has `stored` 0."""

    stored: Int32


class OnceStep(msgspec.Struct, frozen=True, gc=False):
    """Where in its lane a request stands."""

    query: str
    batch: int
    partition: int
    first: int
    count: int
    digest: int
    """That of all messages up to the last of these."""
    shards: int

    @property
    def end(self) -> int:
        """The number behind that of the last message."""
        return self.first + self.count

    def value(self) -> str:
        """What stands in the property."""
        numbers = (self.batch, self.partition, self.first, self.count, self.digest, self.shards)
        return ":".join((self.query, *map(str, numbers)))


def read_step(value: str) -> OnceStep | None:
    """The step that a property tells of; None if it tells of none."""
    match = _VALUE.fullmatch(value)
    if match is None:
        return None
    batch, partition, first, count, digest, shards = map(int, match.groups()[1:])
    return OnceStep(match[1], batch, partition, first, count, digest, shards)


def without_first(body: bytes | bytearray | memoryview, count: int) -> tuple[memoryview, memoryview]:
    """The body of a batch, cut behind its first messages; what cannot be read raises `ProtocolError`."""
    view = memoryview(body)
    ends = item_ends(view)
    at = ends[count - 1] if count else 0
    return view[:at], view[at:]


ONCE_MARKER: Final = f"{ONCE}\x01".encode()
"""What a record has in it that carries the property."""
