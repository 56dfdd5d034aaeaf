"""Pre-encoded records: CometMQ's own send request with records as the commit log has them.

A writer with many messages encodes them as log records. The broker checks them, fills in the fields that only
it knows, and writes them; that costs it a fraction of a batch.

Rules kept here:
- The header is that of a send. Its properties have the number of records and whether they have keys.
- The body has, big-endian: the size of each record (4 bytes); the tags code of each (8); if they have keys,
  the index hash of the unique key of each (4); then the records, one after the other.
- The records are of version 1, with IPv4 hosts, for the topic of the header. Checksum, queue id, queue
  offset, physical offset, born host, store time and store host are left to the broker.
"""

from __future__ import annotations

from typing import Final

from cometmq.model.errors import MessageError
from cometmq.wire.record.properties import format_properties, parse_properties

COUNT: Final = "COUNT"
KEYED: Final = "KEYED"
SIZE_BYTES: Final = 4
CODE_BYTES: Final = 8
HASH_BYTES: Final = 4


def describe_records(count: int, *, keyed: bool) -> str:
    """Returns the properties of the request."""
    return format_properties({COUNT: str(count), KEYED: "true" if keyed else "false"})


def read_description(properties: str | None) -> tuple[int, bool]:
    """Returns the number of records, and whether they come with hashes of their unique keys."""
    found = parse_properties(properties or "")
    count = found.get(COUNT, "")
    if not count.isdecimal() or len(count) > len("1000000"):
        raise MessageError("the request does not say how many records it has")
    return int(count), found.get(KEYED) == "true"
