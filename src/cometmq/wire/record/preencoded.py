"""Records that a writer has put together itself: a request of our own, which no other broker knows.

A writer with many messages at hand encodes them as the records that they become in the log. The broker checks
them, fills in what only it knows, and writes them as they are; that costs it a fraction of what a batch does.

Rules kept here:
- The header is that of a send. Its properties say how many records there are, and whether they have keys.
- The body has, in this order and with the highest byte first: the size of each record in 4 bytes; the hash of
  the tags of each, as a queue has it, in 8; if they have keys, the hash of the unique key of each, as the
  index has it, in 4; then the records, one behind the other.
- The records are of the first version, with hosts of 4 bytes, and all for the topic of the header. Their
  checksum, queue, queue offset, place, born host, store time and store host are left to the broker.
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
    """What the properties of the request say."""
    return format_properties({COUNT: str(count), KEYED: "true" if keyed else "false"})


def read_description(properties: str | None) -> tuple[int, bool]:
    """How many records there are, and whether hashes of their unique keys come with them."""
    found = parse_properties(properties or "")
    count = found.get(COUNT, "")
    if not count.isdecimal() or len(count) > len("1000000"):
        raise MessageError("the request does not say how many records it has")
    return int(count), found.get(KEYED) == "true"
