"""PULL_MESSAGE and the pop family; only the main port serves reads.

The frequent requests go straight to what serves them, which saves each of them a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from cometmq.broker.context import BrokerContext
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, Deferred, Handler, handles
from cometmq.wire.bodies.pop import BatchAckRequest, decode_batch_acks
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import Command
from cometmq.wire.header.schema import Header
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

READS: Final[Sequence[tuple[RequestCode, type[Header], Callable[[BrokerContext], Handler]]]] = (
    (RequestCode.PULL_MESSAGE, PullMessageRequest, lambda context: context.puller.pull),
    (RequestCode.LITE_PULL_MESSAGE, PullMessageRequest, lambda context: context.puller.pull),
    (RequestCode.POP_MESSAGE, PopMessageRequest, lambda context: context.pop.popper.pop),
    (RequestCode.ACK_MESSAGE, AckMessageRequest, lambda context: context.pop.acks.ack),
    (
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        ChangeInvisibleTimeRequest,
        lambda context: context.pop.acks.change_time,
    ),
    (RequestCode.PEEK_MESSAGE, PeekMessageRequest, lambda context: context.pop.peeker.peek),
    (RequestCode.NOTIFICATION, NotificationRequest, lambda context: context.pop.peeker.notify),
)
"""Code and header of the frequent requests, and the method of a part of the broker that is their handler."""


class PopHandlers:
    """BATCH_ACK_MESSAGE, POP_ROLLBACK and POLLING_INFO."""

    def __init__(self, context: BrokerContext) -> None:
        self._pop = context.pop

    @handles(RequestCode.BATCH_ACK_MESSAGE)
    def ack_batch(self, request: Command, connection: Connection) -> Answer | Deferred:
        """Messages of several pops are done."""
        batch = decode_batch_acks(request.body) if request.body else BatchAckRequest()
        return self._pop.acks.ack_batch(batch, request, connection)

    @handles(RequestCode.POP_ROLLBACK)
    def roll_back(self) -> Answer:
        """Bring back what was popped from a key-value store; here all of it is in the revive topic anyway."""
        return Answer()

    @handles(RequestCode.POLLING_INFO, PollingInfoRequest)
    def polling_info(self, header: PollingInfoRequest, connection: Connection) -> Answer:
        """How many pops wait."""
        return Answer(header=PollingInfoResponse(polling_num=self._pop.waiting_for(header, connection)))
