"""Dumping the messages of a topic as plain values.

Rules kept here:
- Names and formats are those of RocketMQ's own tools. A body is decompressed, as base64, and as text if it is
  UTF-8.
- The store is only read. A message whose record is damaged has an `error` in place of its content.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from cometmq.model.errors import ProtocolError, StoreError
from cometmq.model.message import Host, StoredMessage
from cometmq.ports.disk import Disk
from cometmq.store.config import StoreConfig
from cometmq.store.dispatch_rules import QueuePosition, is_in_queue
from cometmq.store.log.damage import whole_record
from cometmq.store.log.reader import LogReader
from cometmq.store.queue.consume_queue import ConsumeQueue
from cometmq.store.queue.files import Unit
from cometmq.store.tools.survey import Survey, open_log, open_queue, survey_store
from cometmq.wire.record.codec import decode_record
from cometmq.wire.record.walk import to_stored_message

MessageDict = dict[str, str | int | dict[str, str]]

_UNITS_AT_ONCE: Final = 1024


def dump_topic(
    disk: Disk,
    root: Path,
    topic: str,
    *,
    queue_id: int | None = None,
    from_offset: int = 0,
    limit: int | None = None,
    config: StoreConfig | None = None,
) -> Iterator[MessageDict]:
    """The messages of a topic, queue by queue in the order of their offsets, at most `limit` of them."""
    survey = survey_store(disk, root, config)
    log = open_log(disk, survey)
    with closing(log.files):
        for number, message in enumerate(_messages(disk, survey, log, topic, queue_id, from_offset)):
            if number == limit:
                return
            yield message


def _messages(
    disk: Disk, survey: Survey, log: LogReader, topic: str, queue_id: int | None, from_offset: int
) -> Iterator[MessageDict]:
    of_topic = sorted(
        (found for found in survey.queues if found.topic == topic), key=lambda found: found.queue_id
    )
    wanted = [found for found in of_topic if queue_id in (None, found.queue_id)]
    if not wanted:
        if not of_topic:
            raise StoreError(f"topic {topic!r} has no queues in {survey.root}")
        there = ", ".join(str(found.queue_id) for found in of_topic)
        raise StoreError(f"topic {topic!r} has no queue {queue_id} in {survey.root}, but {there}")
    for found in wanted:
        with closing(open_queue(disk, survey, found)) as queue:
            for queue_offset, unit in _units(queue, from_offset):
                if unit[0] >= log.min_offset:
                    yield _message(log, found.topic, found.queue_id, queue_offset, unit)


def _units(queue: ConsumeQueue, from_offset: int) -> Iterator[tuple[int, Unit]]:
    queue_offset = max(queue.min_offset, from_offset)
    while queue_offset < queue.max_offset:
        units = list(queue.units(queue_offset, _UNITS_AT_ONCE))
        if not units:
            return
        yield from enumerate(units, queue_offset)
        queue_offset += len(units)


def _message(log: LogReader, topic: str, queue_id: int, queue_offset: int, unit: Unit) -> MessageDict:
    """The message of a unit."""
    position: MessageDict = {"topic": topic, "queueId": queue_id, "queueOffset": queue_offset}
    position |= {"commitLogOffset": unit[0], "storeSize": unit[1]}
    view = log.view(unit[0], unit[1])
    if view is None:
        return position | {"error": "the commit log has no such offset"}
    if whole_record(view, unit[0]) is None:
        return position | {"error": "the record is damaged"}
    try:
        record = decode_record(view, decompress_body=True)
    except ProtocolError as error:
        return position | {"error": str(error)}
    if not is_in_queue(record, QueuePosition(topic, queue_id, queue_offset)):
        found = f"{record.topic}, queue {record.queue_id}, offset {record.queue_offset}"
        return position | {"error": f"the record there is that of {found}"}
    return message_dict(to_stored_message(record, "")) | position


def message_dict(message: StoredMessage) -> MessageDict:
    """A message with the names that RocketMQ's tools show it with."""
    shown: MessageDict = {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.commit_log_offset,
        "storeSize": message.store_size,
        "bodyCRC": message.body_crc,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": _host(message.born_host),
        "storeTimestamp": message.store_timestamp_ms,
        "storeHost": _host(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "properties": dict(message.properties),
        "body": base64.b64encode(message.body).decode("ascii"),
    }
    try:
        shown["text"] = message.body.decode("utf-8")
    except UnicodeDecodeError:
        pass
    return shown


def _host(host: Host) -> str:
    return f"[{host.ip}]:{host.port}" if ":" in host.ip else f"{host.ip}:{host.port}"
