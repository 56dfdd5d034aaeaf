"""What a producer gets for a message that a broker has stored."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from cometmq.model.queue import MessageQueue
from cometmq.wire.codes import ResponseCode
from cometmq.wire.headers.send import SendMessageResponse

DEFAULT_REGION: Final = "DefaultRegion"


class SendStatus(StrEnum):
    """How safe a stored message is. All but the first say what the broker was told to wait for in vain."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


STATUS_OF_CODE: Final[dict[int, SendStatus]] = {
    ResponseCode.SUCCESS.value: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT.value: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT.value: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE.value: SendStatus.SLAVE_NOT_AVAILABLE,
}
"""The answers that mean: stored."""


class SendReceipt(msgspec.Struct, frozen=True, gc=False):
    """Where a message was stored, and under which ids."""

    status: SendStatus
    msg_id: str
    """The id that the producer gave the message."""
    offset_msg_id: str
    """The id that says where the broker has it."""
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region_id: str = DEFAULT_REGION
    trace_on: bool = True
    recall_handle: str | None = None
    """What takes a delayed message back, where the broker offers that."""


def receipt_of(
    status: SendStatus, header: SendMessageResponse, msg_id: str, topic: str, broker_name: str
) -> SendReceipt:
    """The receipt for one message."""
    return SendReceipt(
        status,
        msg_id,
        header.msg_id,
        MessageQueue(topic, broker_name, header.queue_id),
        header.queue_offset,
        header.transaction_id,
        header.msg_region or DEFAULT_REGION,
        header.trace_on is not False,
        header.recall_handle,
    )


def receipts_of_batch(whole: SendReceipt, msg_ids: list[str]) -> list[SendReceipt]:
    """A receipt for each message of a batch, which a broker stores one behind the other."""
    offset_ids = whole.offset_msg_id.split(",")
    if len(offset_ids) != len(msg_ids):  # one record for all of them
        offset_ids = [whole.offset_msg_id] * len(msg_ids)
    return [
        msgspec.structs.replace(
            whole, msg_id=msg_id, offset_msg_id=offset_id, queue_offset=whole.queue_offset + number
        )
        for number, (msg_id, offset_id) in enumerate(zip(msg_ids, offset_ids, strict=True))
    ]
