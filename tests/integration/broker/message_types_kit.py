"""Producers that a broker can ask, and a broker's store as a kill would leave it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from cometmq.remoting.client import RemotingClient
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Answer, Deferred, HandlerTable
from cometmq.wire.bodies.heartbeat import HeartbeatData, ProducerData, encode_heartbeat
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.send import (
    CheckTransactionStateRequest,
    EndTransactionRequest,
    ReplyMessageRequest,
)
from cometmq.wire.headers.session import HeartbeatRequest
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.ids import decode_offset_id
from tests.answers import Told, told
from tests.integration.broker.broker_kit import CALL_S, BrokerKit

GROUP = "shop"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


class Half(NamedTuple):
    """What a producer knows of its half message."""

    queue_offset: int
    commit_log_offset: int
    unique_key: str


def half_of(answer: Told) -> Half:
    """The half message of a send that was accepted."""
    assert answer.code == 0, answer
    fields = answer.fields
    physical_offset = decode_offset_id(fields["msgId"] or "").commit_log_offset
    return Half(int(fields["queueOffset"] or -1), physical_offset, fields["transactionId"] or "")


class Question(NamedTuple):
    """A question of the broker about a transaction."""

    header: CheckTransactionStateRequest
    message: Record

    @property
    def half(self) -> Half:
        header = self.header
        return Half(header.tran_state_table_offset, header.commit_log_offset, header.msg_id or "")


class Producer:
    """A producer with a connection of its own; it remembers what the broker asks and brings it."""

    def __init__(self, broker: BrokerKit | str, client_id: str = "producer", group: str = GROUP) -> None:
        self.address = broker if isinstance(broker, str) else broker.embedded.address
        self.client_id = client_id
        self.group = group
        self.questions: list[Question] = []
        self.replies: list[tuple[ReplyMessageRequest, bytes]] = []
        self.on_question: Callable[[Question], int | None] = lambda _: None
        self.reply_answer: Answer | Deferred = Answer()
        table = HandlerTable()
        table.add(RequestCode.CHECK_TRANSACTION_STATE, CheckTransactionStateRequest, self._asked)
        table.add(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ReplyMessageRequest, self._brought)
        self.client = RemotingClient(handlers=table)
        self._tasks: set[asyncio.Future[Told]] = set()

    async def __aenter__(self) -> Producer:
        await self.heartbeat()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.stop()

    async def heartbeat(self) -> None:
        data = HeartbeatData(self.client_id, (ProducerData(self.group),))
        answer = await self.client.call(
            self.address,
            RequestCode.HEART_BEAT,
            HeartbeatRequest(),
            body=encode_heartbeat(data),
            timeout_s=CALL_S,
        )
        assert answer.code == 0

    def _asked(
        self, header: CheckTransactionStateRequest, request: Command, connection: Connection
    ) -> Answer:
        question = Question(header, decode_record(bytes(request.body)))
        self.questions.append(question)
        outcome = self.on_question(question)
        if outcome is not None:
            task = asyncio.ensure_future(self.end(question.half, outcome, from_check=True))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return Answer()

    def _brought(
        self, header: ReplyMessageRequest, request: Command, connection: Connection
    ) -> Answer | Deferred:
        self.replies.append((header, bytes(request.body)))
        return self.reply_answer

    async def end(self, half: Half, outcome: int, *, from_check: bool = False, **changes: object) -> Told:
        values: dict[str, object] = {
            "producer_group": self.group,
            "tran_state_table_offset": half.queue_offset,
            "commit_log_offset": half.commit_log_offset,
            "commit_or_rollback": outcome,
            "msg_id": half.unique_key,
            "from_transaction_check": from_check,
            **changes,
        }
        header = EndTransactionRequest(**values)  # type: ignore[arg-type]
        code = RequestCode.END_TRANSACTION
        return told(await self.client.call(self.address, code, header, timeout_s=CALL_S))


NEVER = DEFERRED
"""An answer that does not come."""


def kill(kit: BrokerKit, folder: Path) -> Path:
    """What a broker that is killed now leaves behind: its files, as they are at this moment."""
    source = kit.embedded.folder.parent
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("lock", "namesrv", "*.tmp"))
    return folder


def transaction(unique_key: str, **properties: str) -> Mapping[str, str]:
    """The properties of a message that belongs to a transaction."""
    return {"UNIQ_KEY": unique_key, "TRAN_MSG": "true", "PGROUP": GROUP, "WAIT": "true", **properties}
