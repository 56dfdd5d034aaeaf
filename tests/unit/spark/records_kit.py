"""Records behind one another, and what they are as rows by the decoder that reads one at a time."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from cometmq.model.message import Host
from cometmq.model.message_properties import KEYS, TAGS, UNIQ_KEY
from cometmq.wire.record.codec import Record, decode_record, encode_record
from cometmq.wire.record.ids import pack_host
from cometmq.wire.record.walk import to_stored_message

BORN_MS = 1_700_000_000_000
CLIENT = pack_host(Host("10.0.0.1", 50_000))
CLIENT_V6 = pack_host(Host("2001:db8::1", 50_001))
BROKER = pack_host(Host("127.0.0.1", 10_911))
BROKER_V6 = pack_host(Host("::1", 10_911))

Row = dict[str, Any]


def record(body: bytes = b"hello", block: bytes = b"", **fields: Any) -> Record:
    """A record; `fields` as `Record` has them."""
    usual: dict[str, Any] = {
        "topic": "orders",
        "born_timestamp_ms": BORN_MS,
        "store_timestamp_ms": BORN_MS + 5,
        "born_host": CLIENT,
        "store_host": BROKER,
    }
    return Record(body=body, properties_block=block, **usual | fields)


def placed(records: Iterable[Record], start: int = 0) -> bytes:
    """The records behind one another, each with its physical offset."""
    content = bytearray()
    for each in records:
        each.physical_offset = start + len(content)
        content += encode_record(each)
    return bytes(content)


def rows_of(content: bytes, starts: Sequence[int], broker_name: str, *, with_properties: bool) -> list[Row]:
    """The rows that the records at these places are."""
    return [_row(content, start, broker_name, with_properties) for start in starts]


def _row(content: bytes, start: int, broker_name: str, with_properties: bool) -> Row:
    message = to_stored_message(decode_record(content, start, decompress_body=True), broker_name)
    properties = message.properties
    keys = [key for key in properties.get(KEYS, "").split(" ") if key]
    return {
        "topic": message.topic,
        "brokerName": broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": properties.get(UNIQ_KEY, message.offset_msg_id),
        "tags": properties.get(TAGS),
        "keys": keys if KEYS in properties else None,
        "properties": list(properties.items()) if with_properties else None,
        "body": message.body,
        "bornTimestamp": moment(message.born_timestamp_ms),
        "storeTimestamp": moment(message.store_timestamp_ms),
        "bornHost": str(message.born_host),
        "reconsumeTimes": message.reconsume_times,
    }


def moment(time_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)


def consumer_row(line: bytes | str) -> Row:
    """The row of a message that a Java consumer wrote down, without what the client adds to it."""
    said = json.loads(line)
    added = {"MIN_OFFSET", "MAX_OFFSET"}
    properties = {name: value for name, value in said["properties"].items() if name not in added}
    keys = [key for key in properties.get(KEYS, "").split(" ") if key]
    return {
        "topic": said["topic"],
        "brokerName": said["brokerName"],
        "queueId": said["queueId"],
        "queueOffset": said["queueOffset"],
        "msgId": said["msgId"],
        "tags": properties.get(TAGS),
        "keys": keys if KEYS in properties else None,
        "properties": properties,
        "body": base64.b64decode(said["body"]),
        "bornTimestamp": moment(said["bornTimestamp"]),
        "storeTimestamp": moment(said["storeTimestamp"]),
        "bornHost": said["bornHost"].removeprefix("/"),
        "reconsumeTimes": said["reconsumeTimes"],
    }
