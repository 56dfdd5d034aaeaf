"""PULL_MESSAGE and the pop family; only the main port serves reads."""

from __future__ import annotations

from collections.abc import Awaitable

from cometmq.broker.context import BrokerContext
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, Deferred, NoHeader, Result, handles
from cometmq.wire.bodies.pop import BatchAckRequest, decode_batch_acks
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    NotificationRequest,
    PeekMessageRequest,
    PollingInfoRequest,
    PollingInfoResponse,
    PopMessageRequest,
)
from cometmq.wire.headers.pull import PullMessageRequest


class PullHandlers:
    """PULL_MESSAGE, and the same for consumers that pull on their own."""

    def __init__(self, context: BrokerContext) -> None:
        self._puller = context.puller

    @handles(RequestCode.LITE_PULL_MESSAGE, PullMessageRequest)
    @handles(RequestCode.PULL_MESSAGE, PullMessageRequest)
    def pull(self, header: PullMessageRequest, request: Command, connection: Connection) -> Result:
        """Messages of one queue from an offset on."""
        return self._puller.pull(header, request, connection)


class PopHandlers:
    """POP_MESSAGE, and what follows it."""

    def __init__(self, context: BrokerContext) -> None:
        self._pop = context.pop

    @handles(RequestCode.POP_MESSAGE, PopMessageRequest)
    def pop(self, header: PopMessageRequest, request: Command, connection: Connection) -> Result:
        """Messages for a time."""
        return self._pop.popper.pop(header, request, connection)

    @handles(RequestCode.ACK_MESSAGE, AckMessageRequest)
    def ack(self, header: AckMessageRequest, request: Command, connection: Connection) -> Answer | Deferred:
        """A message is done."""
        return self._pop.acks.ack(header, request, connection)

    @handles(RequestCode.BATCH_ACK_MESSAGE)
    def ack_batch(self, header: NoHeader, request: Command, connection: Connection) -> Answer | Deferred:
        """Several are."""
        batch = decode_batch_acks(request.body) if request.body else BatchAckRequest()
        return self._pop.acks.ack_batch(batch, request, connection)

    @handles(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ChangeInvisibleTimeRequest)
    def change_time(
        self, header: ChangeInvisibleTimeRequest, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """A message is to be invisible for another time."""
        return self._pop.acks.change_time(header, request, connection)

    @handles(RequestCode.PEEK_MESSAGE, PeekMessageRequest)
    def peek(self, header: PeekMessageRequest, request: Command, connection: Connection) -> Awaitable[Answer]:
        """The next messages, without taking them."""
        return self._pop.peeker.peek(header, request, connection)

    @handles(RequestCode.NOTIFICATION, NotificationRequest)
    def notify(
        self, header: NotificationRequest, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """Whether a pop would find anything."""
        return self._pop.peeker.notify(header, request, connection)

    @handles(RequestCode.POP_ROLLBACK)
    def roll_back(self) -> Answer:
        """Bring back what was popped from a key-value store; here all of it is in the revive topic anyway."""
        return Answer()

    @handles(RequestCode.POLLING_INFO, PollingInfoRequest)
    def polling_info(self, header: PollingInfoRequest, connection: Connection) -> Answer:
        """How many pops wait."""
        return Answer(header=PollingInfoResponse(polling_num=self._pop.waiting_for(header, connection)))
