"""What the tests of records that come as such share: messages, and requests with them."""

from __future__ import annotations

import random
import struct

from cometmq.store.dispatch_rules import put_values
from cometmq.store.index.key_hash import key_hash
from cometmq.store.put.bulk import RecordBulk
from cometmq.wire.java_hash import java_hash
from cometmq.wire.record.codec import Record
from cometmq.wire.record.layout import FIXED_V4, MAGIC_V1
from tests.unit.store.log_kit import BORN_HOST, START_MS

TOPIC, QUEUE = b"orders", 0


def message(number: int) -> tuple[bytes, bytes]:
    """A body and properties, of many lengths."""
    body = random.Random(number).randbytes(1 + number * 7 % 300)
    return body, b"UNIQ_KEY\x01%016X\x02TAGS\x01tag-%d\x02" % (number, number % 3)


def alike(number: int) -> tuple[bytes, bytes]:
    """The same, of one length."""
    return b"%032d" % number, b"UNIQ_KEY\x01%016X\x02TAGS\x01tag-%d\x02" % (number, number % 3)


def record(body: bytes, block: bytes, **changes: int) -> bytes:
    """A record as a writer encodes it."""
    size = FIXED_V4.size + len(body) + 1 + len(TOPIC) + 2 + len(block)
    fields = {
        "size": size,
        "magic": MAGIC_V1,
        "crc": 0,
        "queue_id": 77,  # which the broker knows better
        "flag": 0,
        "queue_offset": 0,
        "place": 0,
        "sys_flag": 0,
        "born_ms": START_MS,
        "born_host": 0,
        "stored_ms": 0,
        "store_host": 0,
        "consumed": 0,
        "prepared": 0,
        "length": len(body),
        **changes,
    }
    fixed = struct.pack(">iIiiiqqiqqqqiqi", *fields.values())
    return fixed + body + bytes([len(TOPIC)]) + TOPIC + len(block).to_bytes(2, "big") + block


def request(messages: list[tuple[bytes, bytes]], *, keyed: bool = True) -> bytes:
    """The body of a request."""
    records = [record(*each) for each in messages]
    beginning = java_hash("orders#")
    sizes = b"".join(len(each).to_bytes(4, "big") for each in records)
    values = [put_values(block) for _, block in messages]
    codes = b"".join(struct.pack(">q", each[0]) for each in values)
    hashes = b"".join(struct.pack(">i", key_hash(beginning, each[1] or each[2] or b"")) for each in values)
    return sizes + codes + (hashes if keyed else b"") + b"".join(records)


def bulk(
    body: bytes | bytearray,
    count: int,
    *,
    keyed: bool = True,
    max_size: int = 4096,
    born_host: bytes = BORN_HOST,
) -> RecordBulk:
    head = Record(TOPIC.decode(), b"", queue_id=QUEUE, born_host=born_host)
    return RecordBulk(head, body, count, keyed=keyed, max_size=max_size)
