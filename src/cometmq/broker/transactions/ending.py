"""What a producer says about the end of its transaction, carried out.

Rules kept here:
- A commit puts the message for consumers, and then notes the end; a rollback only notes it. A transaction
  that has ended stays as it ended, however often its producer says so.
- The end is believed only if it names the half message in every respect: its place in the log and in the half
  topic, and its producer group.
- A producer that asked for time before it is checked has to keep to it: after that only the answer to a check
  counts.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from cometmq.broker.send_checks import SendRefused
from cometmq.broker.topic_counts import TopicCounts
from cometmq.broker.topic_names import TRANS_HALF_TOPIC
from cometmq.broker.transactions.ends import TransactionEnds
from cometmq.broker.transactions.halves import committed, find_target, read_immunity_ms
from cometmq.model.message_properties import CHECK_IMMUNITY_TIME_IN_SECONDS, PGROUP
from cometmq.model.sysflag import TransactionType
from cometmq.store.status import PutStatus
from cometmq.wire.codes import ResponseCode
from cometmq.wire.headers.send import EndTransactionRequest
from cometmq.wire.properties import find_property
from cometmq.wire.record import Record, decode_record

if TYPE_CHECKING:
    from cometmq.broker.state import BrokerState

log = logging.getLogger("cometmq.broker")

_NOT_STORED: Final = {
    PutStatus.CREATE_MAPPED_FILE_FAILED: (ResponseCode.SYSTEM_ERROR, "Create mapped file failed."),
    PutStatus.MESSAGE_ILLEGAL: (ResponseCode.MESSAGE_ILLEGAL, "The message is illegal."),
    PutStatus.PROPERTIES_SIZE_EXCEEDED: (
        ResponseCode.MESSAGE_ILLEGAL,
        "The message is illegal: its properties are too long.",
    ),
    PutStatus.SERVICE_NOT_AVAILABLE: (ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now."),
    PutStatus.OS_PAGE_CACHE_BUSY: (
        ResponseCode.SYSTEM_ERROR,
        "OS page cache busy, please try another machine",
    ),
}


class TransactionEnding:
    """Ends transactions; belongs to the event loop."""

    def __init__(self, state: BrokerState, ends: TransactionEnds, counts: TopicCounts) -> None:
        self._state = state
        self._ends = ends
        self._counts = counts
        self.committed: dict[str, int] = {}
        """How many transactions succeeded since the start, by topic."""
        self.rolled_back: dict[str, int] = {}
        """How many did not."""

    def end(self, header: EndTransactionRequest, outcome: TransactionType) -> None:
        """Commit or roll back; raises `SendRefused` if that cannot be done."""
        half = self._half(header)
        before = self._ends.outcome(half.queue_id, half.queue_offset)
        if before is outcome:
            return
        if before is not None:
            remark = f"the transaction has ended already: {before.name}"
            raise SendRefused(ResponseCode.SYSTEM_ERROR, remark)
        if self._ends.is_full:
            remark = "ends of transactions cannot be stored now; the transaction is checked later"
            raise SendRefused(ResponseCode.SYSTEM_BUSY, remark)
        target = find_target(half.properties_block)
        if target is None:
            raise SendRefused(ResponseCode.SYSTEM_ERROR, "the half message does not say where it belongs")
        topic, ended = target[0], self.rolled_back
        if outcome is TransactionType.COMMIT:
            self._put(committed(half, *target))
            ended = self.committed
            self._state.traffic.committed(topic, self._state.clock.now_ms() - half.born_timestamp_ms)
        ended[topic] = ended.get(topic, 0) + 1
        self._ends.end(half.queue_id, half.queue_offset, outcome)
        self._counts.add(topic, -1)

    def _half(self, header: EndTransactionRequest) -> Record:
        view = self._state.store.lookup.at(header.commit_log_offset)
        if view is None:
            raise SendRefused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        half = decode_record(view)
        block = half.properties_block = bytes(half.properties_block)  # it is searched, and then put again
        self._refuse_late(header, half)
        if find_property(block, PGROUP) != header.producer_group:
            raise SendRefused(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.queue_offset != header.tran_state_table_offset:
            raise SendRefused(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        if half.topic != TRANS_HALF_TOPIC or half.physical_offset != header.commit_log_offset:
            raise SendRefused(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")
        return half

    def _refuse_late(self, header: EndTransactionRequest, half: Record) -> None:
        if header.from_transaction_check:
            return
        asked_ms = read_immunity_ms(find_property(half.properties_block, CHECK_IMMUNITY_TIME_IN_SECONDS))
        if asked_ms is None:
            return
        age_ms = self._state.clock.now_ms() - half.born_timestamp_ms
        if age_ms > max(asked_ms, self._state.config.transaction_time_out):
            remark = "the time that the transaction asked for is over; wait for its check"
            raise SendRefused(ResponseCode.ILLEGAL_OPERATION, remark)

    def _put(self, message: Record) -> None:
        status = self._state.store.put(message).status
        if status is not PutStatus.PUT_OK:
            code, remark = _NOT_STORED.get(status, (ResponseCode.SYSTEM_ERROR, status.value))
            log.warning("a committed message for %s could not be put: %s", message.topic, status.value)
            raise SendRefused(code, remark)
