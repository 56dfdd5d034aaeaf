"""Messages of every kind that a store can hold, to be put into it, and what a reader must see of them then.

Rules kept here:
- Everything about a message is decided here, except what the store itself decides: place and time.
- What a reader must see is made from what was put, never from what was read.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import msgspec

from cometmq.model import message_properties as names
from cometmq.model.message import Host, StoredMessage
from cometmq.model.names import DELAY_TOPIC
from cometmq.model.sysflag import COMPRESSED, CompressionType, TransactionType, with_compression
from cometmq.store.log.batch import MessageBatch
from cometmq.wire.record.batch import BatchItem, encode_batch
from cometmq.wire.record.codec import Record, decode_record, encode_record
from cometmq.wire.record.compression import compress
from cometmq.wire.record.ids import pack_host
from cometmq.wire.record.properties import encode_properties
from cometmq.wire.record.walk import to_stored_message

BAZAAR = "Bazaar"
"""A topic of four queues for single messages of every kind."""
BURST = "Burst"
"""A topic of one queue, for more messages than a file of it can hold."""
LATE = "Late"
"""Where delayed messages are delivered to; empty before."""
LONG_RETRY = "%RETRY%" + "g" * 140
"""A topic with a name that only version 2 of the record can hold."""
TIMER_TOPIC = "rmq_sys_wheel_timer"
"""Where messages wait that are to be delivered at a point in time."""
QUEUES = {BAZAAR: 4, BURST: 1, LATE: 2, LONG_RETRY: 1}
ALL_TOPICS = (*QUEUES, DELAY_TOPIC, TIMER_TOPIC)
LONGEST_LEVEL = 18
"""A delay of two hours."""

BORN_HOST = pack_host(Host("10.1.2.3", 50_123))
BORN_HOST_V6 = pack_host(Host("fd00::2", 50_123))
BORN_MS = 1_700_000_000_000
BURST_SIZE = 3_200
BATCH_SIZE = 32
LARGE_MESSAGES = 500
LARGE_BODY = 15_000
SHARED_KEY = "all-of-them"
TEXT = "Grüße, 世界 🚀 ".encode() * 500

NextId = Callable[[], str]


def a_message(topic: str = BAZAAR, body: bytes = b"hello", **properties: str) -> Record:
    return Record(
        topic,
        body,
        encode_properties(properties),
        born_timestamp_ms=BORN_MS,
        born_host=BORN_HOST,
    )


def singles(next_id: NextId) -> Iterator[Record]:
    """One message of every kind."""
    yield a_message()
    yield a_message(body=b"")
    yield a_message(body=bytes(range(256)))
    yield a_message(TAGS="TagA", KEYS="first", UNIQ_KEY=next_id())
    yield a_message(TAGS="order-created", KEYS="second third", UNIQ_KEY=next_id())  # a negative hash
    yield a_message(TAGS="Köln||東京", KEYS="schlüssel 鍵", UNIQ_KEY=next_id(), größe="XXL", emoji="🚀")
    yield a_message(WAIT="false", __SHARDINGKEY="shard", MSG_REGION="DefaultRegion", TRACE_ON="true")
    for flag in (1, 2**31 - 1, -1):
        yield changed(a_message(UNIQ_KEY=next_id()), flag=flag)
    yield changed(a_message(UNIQ_KEY=next_id()), reconsume_times=7, born_timestamp_ms=1)
    yield changed(a_message(UNIQ_KEY=next_id(), KEYS="from-ipv6"), born_host=BORN_HOST_V6)
    committed = a_message(UNIQ_KEY=next_id(), KEYS="committed", TRAN_MSG="true", PGROUP="producers")
    yield changed(committed, sys_flag=int(TransactionType.COMMIT), prepared_transaction_offset=12)
    for kind in CompressionType:
        packed = a_message(body=compress(TEXT, kind), UNIQ_KEY=next_id(), KEYS=f"packed-{kind.name}")
        yield changed(packed, sys_flag=with_compression(0, kind))
    yield changed(a_message(body=compress(TEXT, CompressionType.ZLIB)), sys_flag=COMPRESSED)
    yield changed(a_message(LONG_RETRY, UNIQ_KEY=next_id(), KEYS="retried"), reconsume_times=1)


def delayed(level: int, body: bytes, unique_id: str) -> Record:
    """A message that waits for delivery to the first queue, as a broker stores it."""
    level_and_target = {names.DELAY: str(level), names.REAL_TOPIC: LATE, names.REAL_QUEUE_ID: "0"}
    message = a_message(DELAY_TOPIC, body, TAGS="TagLate", UNIQ_KEY=unique_id, **level_and_target)
    return changed(message, queue_id=level - 1)


def timed(deliver_at_ms: int, body: bytes, unique_id: str) -> Record:
    """A message that waits for a point in time, to go to the second queue, as a broker stores it."""
    time_and_target = {
        names.TIMER_OUT_MS: str(deliver_at_ms),
        names.REAL_TOPIC: LATE,
        names.REAL_QUEUE_ID: "1",
    }
    return a_message(TIMER_TOPIC, body, TAGS="TagTimed", UNIQ_KEY=unique_id, **time_and_target)


def large_ones(next_id: NextId) -> Iterator[Record]:
    """Messages that take several files of the log, over all queues of the topic."""
    chance = random.Random(5)
    for number in range(LARGE_MESSAGES):
        message = a_message(
            body=chance.randbytes(chance.randrange(LARGE_BODY)),
            KEYS=f"large-{number} {SHARED_KEY}-{number % 10}",
            TAGS=f"Tag{number % 7}",
            UNIQ_KEY=next_id(),
        )
        yield changed(message, queue_id=number % QUEUES[BAZAAR])


def burst(next_id: NextId) -> Iterator[MessageBatch]:
    """Batches, with more messages than a queue file has units."""
    for first in range(0, BURST_SIZE, BATCH_SIZE):
        items = [
            BatchItem(
                f"burst {number}".encode(),
                encode_properties({"KEYS": f"burst-{number}", "UNIQ_KEY": next_id(), "TAGS": "TagBurst"}),
                number,
            )
            for number in range(first, first + BATCH_SIZE)
        ]
        yield a_batch(items)


def a_batch(items: list[BatchItem]) -> MessageBatch:
    """Messages for one queue, with a property that the batch gives to all of them."""
    return MessageBatch(a_message(BURST, b"", WAIT="true"), items, len(encode_batch(items)))


def changed(record: Record, **fields: object) -> Record:
    return msgspec.structs.replace(record, **fields)


def as_stored(record: Record, store_host: bytes, broker_name: str) -> StoredMessage:
    """What a reader must see of a record that was put; a compressed body comes as it was."""
    encoded = encode_record(changed(record, store_host=store_host))
    message = to_stored_message(decode_record(encoded, decompress_body=True), broker_name)
    # With a checksum of its own the record takes more bytes than what was put.
    return msgspec.structs.replace(message, store_size=record.total_size)


def batch_as_stored(batch: MessageBatch, store_host: bytes, broker_name: str) -> Iterator[StoredMessage]:
    """The same for each message of a batch."""
    head = batch.head
    place, queue_offset = head.physical_offset, head.queue_offset
    for item, size in zip(batch.items, batch.sizes, strict=True):
        record = changed(
            head,
            body=item.body,
            properties_block=bytes(item.properties_block) + bytes(head.properties_block),
            flag=item.flag,
            physical_offset=place,
            queue_offset=queue_offset,
            total_size=size,
        )
        yield as_stored(record, store_host, broker_name)
        place += size
        queue_offset += 1


def without_checksum(message: StoredMessage) -> StoredMessage:
    """The message without the property that the store itself may have put behind the others."""
    properties = {name: value for name, value in message.properties.items() if name != names.CRC32}
    return msgspec.structs.replace(message, properties=properties)
