"""Answers to sends: the position of the message, or why it was not stored.

Rules kept here: codes and remarks are RocketMQ's; any answer, also a refusal, carries the region and the
trace switch of the broker.
"""

from __future__ import annotations

from typing import Final

from cometmq.broker.monitor.counters import Traffic
from cometmq.broker.send.pressure import Pressure
from cometmq.broker.settings import Settings
from cometmq.model.message import Host
from cometmq.model.message_properties import MSG_REGION, TRACE_ON
from cometmq.ports.disk import Disk, used_percent
from cometmq.remoting.handler import Answer
from cometmq.store.message_store import MessageStore
from cometmq.store.put.writer import PutResult
from cometmq.store.status import PutStatus
from cometmq.wire.codes import ResponseCode
from cometmq.wire.frame.command import encode_response_head
from cometmq.wire.frame.framing import FRAME_PREFIX_BYTES
from cometmq.wire.headers.send import SendMessageResponse
from cometmq.wire.record.ids import pack_host

_OK: Final = PutStatus.PUT_OK
_STORED_CODES: Final = {
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT.value,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT.value,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE.value,
}
_UNSTORED: Final = {
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: (ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough"),
    PutStatus.CREATE_MAPPED_FILE_FAILED: (
        ResponseCode.SYSTEM_ERROR,
        "create mapped file failed, server is busy or broken.",
    ),
    PutStatus.OS_PAGE_CACHE_BUSY: (
        ResponseCode.SYSTEM_BUSY,
        "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
    ),
    PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: (
        ResponseCode.SYSTEM_ERROR,
        "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch, lmq consumeQueue "
        "num exceed maxLmqConsumeQueueNum config num, default limit 2w.",
    ),
    PutStatus.UNKNOWN_ERROR: (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"),
}


class SendAnswers:
    """The answers of one broker to sends."""

    def __init__(
        self,
        settings: Settings,
        disk: Disk,
        host: Host,
        store: MessageStore,
        traffic: Traffic,
        pressure: Pressure,
    ) -> None:
        self._settings = settings
        self._traffic = traffic
        self._store = store
        self._disk = disk
        config = settings.broker
        self.fields = {MSG_REGION: config.region_id, TRACE_ON: "true" if config.trace_on else "false"}
        """Fields of every answer."""
        self._pressure = pressure
        self._region = config.region_id
        self._trace_on = config.trace_on
        self._id_prefix = pack_host(host).hex().upper()
        self.template: Final = self._make_template()
        """Makes the JSON header of the answer to a plain send, for a unique key of letters and digits: of the
        offset in the log, queue id, queue offset, unique key and opaque."""

    def refuse(self, code: int, remark: str) -> Answer:
        return Answer(code, remark=remark, fields=self.fields)

    def stored(
        self,
        result: PutResult,
        status: PutStatus,
        queue_id: int,
        unique_key: str | None,
        recall_handle: str | None = None,
    ) -> Answer:
        """Where a message is, or where the messages of a batch are; they are counted as taken."""
        start, end = result.physical_offset, result.end_offset
        self.count(len(result.sizes) or 1, end - start, end)
        ids = result.offset_ids if result.sizes else self._id_at(start)
        return self._where(status, ids, queue_id, result.queue_offset, unique_key, recall_handle)

    def stored_alone(
        self, status: PutStatus, queue_id: int, queue_offset: int, start: int, unique_key: bytes
    ) -> Answer:
        """Where a plain message is that was counted before."""
        key = unique_key.decode("utf-8", "replace")
        return self._where(status, self._id_at(start), queue_id, queue_offset, key, None)

    def count(self, messages: int, size: int, end_offset: int) -> None:
        """Messages were taken that have this size in the log, and end there."""
        self._traffic.put_messages += messages
        self._traffic.put_bytes += size
        if end_offset > self._pressure.limit_offset:
            self._pressure.passed(end_offset)

    def _id_at(self, start: int) -> str:
        return f"{self._id_prefix}{start:016X}"

    def _where(
        self,
        status: PutStatus,
        ids: str,
        queue_id: int,
        queue_offset: int,
        unique_key: str | None,
        recall_handle: str | None,
    ) -> Answer:
        return Answer(
            0 if status is _OK else _STORED_CODES[status],
            SendMessageResponse(
                msg_id=ids,
                queue_id=queue_id,
                queue_offset=queue_offset,
                transaction_id=unique_key,
                recall_handle=recall_handle,
                msg_region=self._region,
                trace_on=self._trace_on,
            ),
        )

    def _make_template(self) -> bytes:
        """The JSON header that `stored_alone` leads to, with gaps for what differs."""
        queue_id, queue_offset, opaque = -1_111_111_111, -1_222_222_222, -1_333_333_333
        answer = self.stored_alone(_OK, queue_id, queue_offset, 0, b"<key>")
        text = encode_response_head(opaque, 0, answer.header)[FRAME_PREFIX_BYTES:].replace(b"%", b"%%")
        message_id = self._id_at(0).encode()
        text = text.replace(message_id, self._id_prefix.encode() + b"%016X", 1)
        for number in (queue_id, queue_offset, opaque):
            text = text.replace(b"%d" % number, b"%d", 1)
        return text.replace(b"<key>", b"%b", 1)

    def not_stored(self, status: PutStatus) -> Answer:
        self._traffic.put_failures += 1
        known = _UNSTORED.get(status)
        failure = self._store.log.allocation_failure
        if known is not None and failure is not None and status is PutStatus.CREATE_MAPPED_FILE_FAILED:
            return self.refuse(known[0], f"{known[1]} {failure.message}; make room on the broker's disk")
        if known is not None:
            return self.refuse(*known)
        if status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
            most = self._settings.store.max_message_size
            remark = (
                "the message is illegal, maybe msg body or properties length not matched. "
                f"msg body length limit {most}B, msg properties length limit 32KB."
            )
            return self.refuse(ResponseCode.MESSAGE_ILLEGAL, remark)
        if status is PutStatus.SERVICE_NOT_AVAILABLE:
            remark = (
                "service not available now. It may be caused by one of the following reasons: "
                f"the broker's disk is full [{self._disk_use()}], messages are put to the slave, "
                "message store has been shut down, etc."
            )
            trouble = self._store.trouble
            remark += f" This one: {trouble}" if trouble else ""
            return self.refuse(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        return self.refuse(ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR DEFAULT")

    def _disk_use(self) -> str:
        config = self._settings.store
        usage = self._disk.usage
        logs = min(used_percent(usage(folder)) for folder in config.writable_commit_log_folders)
        queues = used_percent(usage(config.root / "consumequeue") or usage(config.root))
        index = used_percent(usage(config.root / "index") or usage(config.root))
        return f"CL: {logs / 100:5.2f} CQ: {queues / 100:5.2f} INDEX: {index / 100:5.2f}"
