"""Balancing by the broker: which queues a consumer reads, and whether it pulls or pops them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.broker.groups.request_modes import POP, PULL
from cometmq.broker.topics.names import RETRY_PREFIX
from cometmq.broker.turns import encode_beside
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, NoHeader, handles
from cometmq.store.tables.tables import MessageRequestMode
from cometmq.wire.bodies.assignment import QueryAssignmentRequest, encode_assignments
from cometmq.wire.bodies.json_body import decode_json_body
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.json.pretty import dumps_table

if TYPE_CHECKING:
    from cometmq.broker.context import BrokerContext


class AssignmentHandlers:
    """QUERY_ASSIGNMENT, and the modes that it tells."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._assignment = context.assignment

    @handles(RequestCode.QUERY_ASSIGNMENT, NoHeader)
    async def query(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        """The queues of a consumer."""
        query = decode_json_body(QueryAssignmentRequest, request.body)
        mode = self._context.request_modes.get(query.topic, query.consumer_group)
        queues = await self._assignment.assign(query, mode)
        return Answer(
            body=await encode_beside(lambda: encode_assignments(queues, mode.mode), len(queues or ()))
        )

    @handles(RequestCode.SET_MESSAGE_REQUEST_MODE, NoHeader)
    async def set_mode(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        """Let a group pull or pop a topic from now on."""
        context, mode = self._context, decode_json_body(MessageRequestMode, request.body)
        if mode.topic.startswith(RETRY_PREFIX):
            return Answer(ResponseCode.NO_PERMISSION, remark="retry topic is not allowed to set mode")
        if context.topics.get(mode.topic) is None:
            return Answer(ResponseCode.TOPIC_NOT_EXIST, remark=f"topic[{mode.topic}] not exist")
        if context.groups.find(mode.consumer_group) is None:
            remark = "subscription group does not exist"
            return Answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark)
        if mode.mode not in (PULL, POP):
            remark = f"the mode {mode.mode!r} is none of {PULL} and {POP}"
            return Answer(ResponseCode.INVALID_PARAMETER, remark=remark)
        await context.request_modes.set(mode)
        return Answer()

    @handles(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, NoHeader)
    def all_modes(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        """What was set, for slaves."""
        return Answer(body=dumps_table(self._context.request_modes.snapshot(), pretty=False))
