"""END_TRANSACTION: commit and rollback of half messages.

Rules kept here:
- A commit puts the message for consumers, and then notes the end; a rollback only notes it. A transaction
  that has ended stays as it ended, however often its producer says so.
- The end is believed only if it names the half message in every respect: its offset in the log and in the
  half topic, and its producer group.
- A producer that asked for time before it is checked has to keep to it: after that only the answer to a check
  counts.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from cometmq.broker.monitor.counters import TopicCounts, Traffic
from cometmq.broker.real_targets import RealTargets
from cometmq.broker.send.checks import SendRefused
from cometmq.broker.set_aside import UnprocessableError
from cometmq.broker.settings import Settings
from cometmq.broker.transactions.half_messages import read_immunity_ms
from cometmq.broker.transactions.op_queue import OpQueue, QueuePosition
from cometmq.model.errors import ProtocolError
from cometmq.model.message_properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    PGROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_ID,
)
from cometmq.model.names import TRANS_HALF_TOPIC
from cometmq.model.sysflag import TransactionType, with_transaction_type
from cometmq.ports.clock import Clock
from cometmq.store.dispatch_rules import put_values
from cometmq.store.message_store import MessageStore
from cometmq.store.put.writer import Later, PlainMessage
from cometmq.store.status import PutStatus
from cometmq.wire.codes import ResponseCode
from cometmq.wire.headers.send import EndTransactionRequest
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.properties import find_property

log = logging.getLogger("cometmq.broker")

_ID: Final = f"{TRANSACTION_ID}\x01".encode()
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


End = tuple[EndTransactionRequest, TransactionType]
"""The request of a producer, and whether it commits or rolls back."""


class _Commit(NamedTuple):
    """A transaction that is to be committed."""

    number: int
    """Which of the ends that came together it is."""
    half: Record
    topic: str
    queue_id: int

    def message(self) -> PlainMessage:
        """The message that consumers get."""
        half = self.half
        block = bytes(half.properties_block)
        return (
            self.topic,
            self.queue_id,
            half.flag,
            with_transaction_type(half.sys_flag, TransactionType.COMMIT),
            half.born_timestamp_ms,
            half.born_host,
            half.reconsume_times,
            half.physical_offset,
            half.body,
            block,
            *put_values(_without_id(block))[:3],
        )


@dataclass(eq=False, repr=False)
class TransactionEnder:
    """Ends transactions; belongs to the event loop."""

    _settings: Settings
    _clock: Clock
    _store: MessageStore
    _traffic: Traffic
    _targets: RealTargets
    _ends: OpQueue
    _counts: TopicCounts

    def __post_init__(self) -> None:
        self.committed: dict[str, int] = {}
        """How many transactions succeeded since the start, by topic."""
        self.rolled_back: dict[str, int] = {}
        """How many did not."""

    def end_all(
        self, ends: Sequence[End], later: Later | None = None
    ) -> tuple[list[SendRefused | None], int]:
        """Commit or roll back each: why that could not be done, or None, and where the last message ends.

        What consumers see of them may follow `later`; the offset is -1 if no message was put.
        """
        refusals: list[SendRefused | None] = [None] * len(ends)
        commits: dict[QueuePosition, _Commit] = {}
        end_offset = -1
        for number, (header, outcome) in enumerate(ends):
            try:
                half = self._half(header)
                position = half.queue_id, half.queue_offset
                if position in commits:  # what comes of it is to be known first
                    end_offset = self._commit(commits, refusals, None)
                target = self._open_target(half, outcome)
            except SendRefused as refusal:
                refusals[number] = refusal
                continue
            if target is None:
                continue
            if outcome is TransactionType.COMMIT:
                commits[position] = _Commit(number, half, *target)
            else:
                self._end(position, target[0], outcome, self.rolled_back)
        if commits:
            end_offset = self._commit(commits, refusals, later)
        return refusals, end_offset

    def _open_target(self, half: Record, outcome: TransactionType) -> tuple[str, int] | None:
        """Where the message of an open transaction belongs; None if it has ended like this already."""
        before = self._ends.outcome(half.queue_id, half.queue_offset)
        if before is outcome:
            return None
        if before is not None:
            remark = f"the transaction has ended already: {before.name}"
            raise SendRefused(ResponseCode.SYSTEM_ERROR, remark)
        if self._ends.is_full:
            remark = "ends of transactions cannot be stored now; the transaction is checked later"
            raise SendRefused(ResponseCode.SYSTEM_BUSY, remark)
        block = half.properties_block
        try:
            return self._targets.find(find_property(block, REAL_TOPIC), find_property(block, REAL_QUEUE_ID))
        except UnprocessableError as error:
            remark = f"the half message does not say where it belongs: {error.message}"
            raise SendRefused(ResponseCode.SYSTEM_ERROR, remark) from None

    def _commit(
        self, commits: dict[QueuePosition, _Commit], refusals: list[SendRefused | None], later: Later | None
    ) -> int:
        """Put the messages of transactions, and note the ends of those that could be put."""
        group = self._store.put_group([commit.message() for commit in commits.values()], later)
        now_ms = self._clock.now_ms()
        for (position, commit), put in zip(commits.items(), group.offsets, strict=True):
            if isinstance(put, PutStatus):
                code, remark = _NOT_STORED.get(put, (ResponseCode.SYSTEM_ERROR, put.value))
                log.warning("a committed message for %s could not be put: %s", commit.topic, put.value)
                refusals[commit.number] = SendRefused(code, remark)
            else:
                self._end(position, commit.topic, TransactionType.COMMIT, self.committed)
                self._traffic.committed(commit.topic, now_ms - commit.half.born_timestamp_ms)
        commits.clear()
        return group.end_offset

    def _end(
        self, position: QueuePosition, topic: str, outcome: TransactionType, counted: dict[str, int]
    ) -> None:
        counted[topic] = counted.get(topic, 0) + 1
        self._ends.end(*position, outcome)
        self._counts.add(topic, -1)

    def _half(self, header: EndTransactionRequest) -> Record:
        view = self._store.lookup.at(header.commit_log_offset)
        if view is None:
            raise SendRefused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        try:
            half = decode_record(view)
        except ProtocolError:
            raise SendRefused(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong") from None
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
        age_ms = self._clock.now_ms() - half.born_timestamp_ms
        if age_ms > max(asked_ms, self._settings.broker.transaction_time_out):
            remark = "the time that the transaction asked for is over; wait for its check"
            raise SendRefused(ResponseCode.ILLEGAL_OPERATION, remark)


def _without_id(block: bytes) -> bytes:
    """Properties without the id of the transaction: those of many messages are the same then."""
    before, _, after = block.partition(_ID)
    if before and not before.endswith(b"\x02"):
        return block
    return before + after.partition(b"\x02")[2]
