"""END_TRANSACTION, and half messages that are to be checked again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from cometmq.broker.context import BrokerContext
from cometmq.broker.send.checks import SendRefused
from cometmq.broker.set_aside import UnprocessableError
from cometmq.broker.transactions.end import End
from cometmq.broker.transactions.half_messages import HALF_QUEUE, renewed
from cometmq.model.errors import ProtocolError
from cometmq.model.message_properties import REAL_QUEUE_ID, REAL_TOPIC, TRANSACTION_CHECK_TIMES
from cometmq.model.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from cometmq.model.sysflag import TransactionType
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Answer, Deferred, GroupResult, handles, handles_groups
from cometmq.store.status import PutStatus
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command, encode_response_head
from cometmq.wire.headers.send import EndTransactionRequest, ResumeCheckHalfMessageRequest
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.ids import decode_offset_id

_DONE: Final = Answer()
_OUTCOMES: Final = {
    TransactionType.COMMIT.value: TransactionType.COMMIT,
    TransactionType.ROLLBACK.value: TransactionType.ROLLBACK,
}


class TransactionHandlers:
    """END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._waits_for_flush = context.settings.flushes_before_answer

    @handles(RequestCode.END_TRANSACTION, EndTransactionRequest)
    def end(
        self, header: EndTransactionRequest, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """Commit or roll back; a producer that does not know yet is asked again later."""
        request.typed = header
        (result,) = self.end_group((request,), connection, framed=False)
        return cast(Answer | Deferred, result)

    @handles_groups(RequestCode.END_TRANSACTION)
    def end_group(
        self, requests: Sequence[Command], connection: Connection, *, framed: bool = True
    ) -> Sequence[GroupResult]:
        """END_TRANSACTION for requests that came together.

        With `framed`, answers may be given as the frames that they are sent in.
        """
        if not self._context.transactions.runs:
            remark = "a slave ends no transactions; ask the master"
            return [Answer(ResponseCode.SLAVE_NOT_AVAILABLE, remark=remark)] * len(requests)
        answers: list[Answer] = [_DONE] * len(requests)
        ends: list[End] = []
        numbers: list[int] = []
        for number, request in enumerate(requests):
            header = cast(EndTransactionRequest, request.typed)
            said = header.commit_or_rollback
            outcome = _OUTCOMES.get(said)
            if outcome is not None:
                ends.append((header, outcome))
                numbers.append(number)
            elif said != TransactionType.NONE:
                remark = f"commitOrRollback {said} is none of 8 commit, 12 rollback, 0 unknown"
                answers[number] = Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        later = connection.do_afterwards if framed else None
        refusals, end_offset = self._context.transactions.ender.end_all(ends, later)
        for number, refusal in zip(numbers, refusals, strict=True):
            if refusal is not None:
                code = refusal.code or ResponseCode.SYSTEM_ERROR
                answers[number] = Answer(code, remark=refusal.message)
        if self._waits_for_flush and end_offset >= 0:
            self._answer_flushed(requests, answers, connection, end_offset)
            return [DEFERRED] * len(requests)
        return [
            encode_response_head(request.opaque)
            if framed and answer is _DONE and not request.flag
            else answer
            for request, answer in zip(requests, answers, strict=True)
        ]

    def _answer_flushed(
        self, requests: Sequence[Command], answers: Sequence[Answer], connection: Connection, end_offset: int
    ) -> None:
        """Answer when the messages are on the disk, or when that took too long: they are put, either way."""

        def done(status: PutStatus) -> None:
            for request, answer in zip(requests, answers, strict=True):
                connection.answer(request, answer)

        self._context.store.flusher.when_flushed(end_offset, done)

    @handles(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessageRequest)
    def resume(self, header: ResumeCheckHalfMessageRequest) -> Answer:
        """Put a half message that was given up into the half topic again, as if it was never checked."""
        given_up = self._given_up(header.msg_id or "")
        properties = given_up.properties()
        try:
            self._context.targets.find(properties.get(REAL_TOPIC), properties.get(REAL_QUEUE_ID))
        except UnprocessableError as error:
            raise SendRefused(ResponseCode.SYSTEM_ERROR, error.message) from None
        properties[TRANSACTION_CHECK_TIMES] = "0"
        given_up.queue_id = HALF_QUEUE
        status = self._context.store.put(renewed(given_up, properties)).status
        if status is not PutStatus.PUT_OK:
            remark = f"Put message back to {TRANS_HALF_TOPIC} failed."
            raise SendRefused(ResponseCode.SYSTEM_ERROR, remark)
        self._context.transactions.counts.add(properties[REAL_TOPIC], 1)
        return Answer()

    def _given_up(self, msg_id: str) -> Record:
        try:
            offset = decode_offset_id(msg_id).commit_log_offset
        except ProtocolError as error:
            raise SendRefused(ResponseCode.SYSTEM_ERROR, error.message) from None
        view = self._context.store.lookup.at(offset)
        try:
            record = None if view is None else decode_record(view)
        except ProtocolError:
            record = None
        # Any message can have the properties of a half message; only the broker writes to these topics.
        if record is None or record.topic not in (TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC):
            remark = (
                f"there is no half message at {offset}; use the id of one in {TRANS_CHECK_MAX_TIME_TOPIC}"
            )
            raise SendRefused(ResponseCode.SYSTEM_ERROR, remark)
        return record
