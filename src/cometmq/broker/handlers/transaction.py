"""Ends of transactions, and half messages that were given up and are to be checked again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cometmq.broker.send_checks import SendRefused
from cometmq.broker.topic_names import TRANS_HALF_TOPIC
from cometmq.broker.transactions.halves import HALF_QUEUE, renewed
from cometmq.model.errors import ProtocolError
from cometmq.model.message_properties import REAL_TOPIC, TRANSACTION_CHECK_TIMES
from cometmq.model.sysflag import TransactionType
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, handles
from cometmq.store.status import PutStatus
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import Command
from cometmq.wire.headers.send import EndTransactionRequest, ResumeCheckHalfMessageRequest
from cometmq.wire.ids import decode_offset_id
from cometmq.wire.record import Record, decode_record

if TYPE_CHECKING:
    from cometmq.broker.state import BrokerState

_DONE: Final = Answer()
_OUTCOMES: Final = {
    TransactionType.COMMIT.value: TransactionType.COMMIT,
    TransactionType.ROLLBACK.value: TransactionType.ROLLBACK,
}


class TransactionHandlers:
    """END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    @handles(RequestCode.END_TRANSACTION, EndTransactionRequest)
    def end(self, header: EndTransactionRequest, request: Command, connection: Connection) -> Answer:
        """Commit or roll back; a producer that does not know yet is asked again later."""
        if not self._state.transactions.runs:
            remark = "a slave ends no transactions; ask the master"
            raise SendRefused(ResponseCode.SLAVE_NOT_AVAILABLE, remark)
        outcome = _OUTCOMES.get(header.commit_or_rollback)
        if outcome is None:
            if header.commit_or_rollback == TransactionType.NONE:
                return _DONE
            remark = (
                f"commitOrRollback {header.commit_or_rollback} is none of 8 commit, 12 rollback, 0 unknown"
            )
            raise SendRefused(ResponseCode.SYSTEM_ERROR, remark)
        self._state.transactions.ending.end(header, outcome)
        return _DONE

    @handles(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessageRequest)
    def resume(
        self, header: ResumeCheckHalfMessageRequest, request: Command, connection: Connection
    ) -> Answer:
        """Put a half message that was given up into the half topic again, as if it was never checked."""
        given_up = self._given_up(header.msg_id or "")
        properties = given_up.properties()
        properties[TRANSACTION_CHECK_TIMES] = "0"
        given_up.queue_id = HALF_QUEUE
        status = self._state.store.put(renewed(given_up, properties)).status
        if status is not PutStatus.PUT_OK:
            remark = f"Put message back to {TRANS_HALF_TOPIC} failed."
            raise SendRefused(ResponseCode.SYSTEM_ERROR, remark)
        self._state.transactions.counts.add(properties[REAL_TOPIC], 1)
        return Answer()

    def _given_up(self, msg_id: str) -> Record:
        try:
            offset = decode_offset_id(msg_id).commit_log_offset
        except ProtocolError as error:
            raise SendRefused(ResponseCode.SYSTEM_ERROR, error.message) from None
        view = self._state.store.lookup.at(offset)
        record = None if view is None else decode_record(view)
        if record is None or REAL_TOPIC not in record.properties():
            raise SendRefused(ResponseCode.SYSTEM_ERROR, f"there is no half message at {offset}")
        return record
