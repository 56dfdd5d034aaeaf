"""SEND_MESSAGE in its forms: one message, or a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from cometmq.broker.context import BrokerContext
from cometmq.broker.send.group_send import GroupSender
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, Deferred, RunResult, handles, handles_runs
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.send import SendMessageRequest, SendMessageRequestV2


class SendHandlers:
    """SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE."""

    def __init__(self, context: BrokerContext) -> None:
        self._sending = context.sending
        self._group_sender = GroupSender(context.settings, context.store, context.traffic, context.sending)

    @handles(RequestCode.SEND_MESSAGE, SendMessageRequest)
    def send_long(
        self, header: SendMessageRequest, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """The form with long field names, of old clients."""
        return self._sending.send(header, request, connection)

    @handles(RequestCode.SEND_MESSAGE_V2, SendMessageRequestV2)
    @handles(RequestCode.SEND_BATCH_MESSAGE, SendMessageRequestV2)
    def send(
        self, header: SendMessageRequestV2, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """Put a message, or a batch if the header says that it is one."""
        request.typed = header
        (result,) = self._group_sender.send((request,), connection, framed=False)
        return cast(Answer | Deferred, result)

    @handles_runs(RequestCode.SEND_MESSAGE_V2)
    def send_run(self, requests: Sequence[Command], connection: Connection) -> Sequence[RunResult]:
        """Put the messages of requests that came together."""
        return self._group_sender.send(requests, connection)
