"""Connected clients as administrators see them, and requests that the broker passes on to a client."""

from __future__ import annotations

import asyncio
import functools
from typing import Final

from cometmq.broker.context import BrokerContext
from cometmq.broker.groups.bodies import (
    encode_consumer_connection,
    encode_producer_connection,
    encode_producers,
    subscription_members,
)
from cometmq.broker.groups.online import Client
from cometmq.broker.query.messages import Queries
from cometmq.broker.time_slices import encode_in_thread
from cometmq.model.errors import CallTimeoutError, CometError
from cometmq.remoting.handler import Answer, handles
from cometmq.wire.bodies.json_body import encode_topic_list
from cometmq.wire.codes import (
    V3_0_7_SNAPSHOT,
    V3_1_8_SNAPSHOT,
    RequestCode,
    ResponseCode,
    version_name,
)
from cometmq.wire.frame.command import Body, Command
from cometmq.wire.header.schema import encode_fields
from cometmq.wire.headers.group import QuerySubscriptionByConsumerRequest, QueryTopicsByConsumerRequest
from cometmq.wire.headers.session import (
    ConsumeMessageDirectlyResultRequest,
    GetConsumerConnectionListRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    GetProducerConnectionListRequest,
)
from cometmq.wire.headers.topic import QueryTopicConsumeByWhoRequest
from cometmq.wire.json import fastjson
from cometmq.wire.record.ids import decode_offset_id

ASK_CLIENT_S: Final = 10.0
ASK_STATUS_S: Final = 5.0
MAX_STATUS_CHARS: Final = 4 * 1024 * 1024
"""A longer status of a client is left out."""


class ConsumerAdminHandlers:
    """Connections of groups, and requests that are passed on to a client."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._queries = Queries(context.store)

    @handles(RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequest)
    def consumer_connections(self, header: GetConsumerConnectionListRequest) -> Answer:
        """The members of a consumer group; the remark says how their subscriptions differ, if they do."""
        group = self._context.clients.consumers.get(header.consumer_group)
        if group is None:
            remark = f"the consumer group[{header.consumer_group}] not online"
            return Answer(ResponseCode.CONSUMER_NOT_ONLINE, remark=remark)
        return Answer(body=encode_consumer_connection(group), remark=group.noted_difference)

    @handles(RequestCode.GET_PRODUCER_CONNECTION_LIST, GetProducerConnectionListRequest)
    def producer_connections(self, header: GetProducerConnectionListRequest) -> Answer:
        """The members of a producer group."""
        members = self._context.clients.producers.get(header.producer_group)
        if members is None:
            remark = f"the producer group[{header.producer_group}] not exist"
            return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        return Answer(body=encode_producer_connection(members.values()))

    @handles(RequestCode.GET_ALL_PRODUCER_INFO)
    async def all_producers(self) -> Answer:
        """All producers, by group."""
        clock = self._context.clock
        groups = {name: list(members.values()) for name, members in self._context.clients.producers.items()}
        encode = functools.partial(encode_producers, groups, clock.now_ms() - clock.monotonic_ms())
        return Answer(body=await encode_in_thread(encode, len(groups)))

    @handles(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, QueryTopicConsumeByWhoRequest)
    def groups_of_topic(self, header: QueryTopicConsumeByWhoRequest) -> Answer:
        """The groups that subscribe to a topic or have an offset in it."""
        online = {
            name
            for name, group in self._context.clients.consumers.items()
            if header.topic in group.subscriptions
        }
        names = sorted(online | self._context.offsets.groups_of_topic(header.topic))
        return Answer(body=fastjson.dumps({"groupList": names}))

    @handles(RequestCode.QUERY_TOPICS_BY_CONSUMER, QueryTopicsByConsumerRequest)
    def topics_of_group(self, header: QueryTopicsByConsumerRequest) -> Answer:
        """The topics in which a group has an offset."""
        return Answer(body=encode_topic_list(sorted(self._context.offsets.topics_of_group(header.group))))

    @handles(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, QuerySubscriptionByConsumerRequest)
    def subscription_of_group(self, header: QuerySubscriptionByConsumerRequest) -> Answer:
        """The subscription of a group to a topic."""
        group = self._context.clients.consumers.get(header.group)
        found = None if group is None else group.subscriptions.get(header.topic or "")
        members: dict[str, object] = {"group": header.group}
        if found is not None:
            members["subscriptionData"] = subscription_members(found)
        return Answer(body=fastjson.dumps({**members, "topic": header.topic}))

    # Calls to clients

    @handles(RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequest)
    async def running_info(self, header: GetConsumerRunningInfoRequest, request: Command) -> Answer:
        """The running info of a client."""
        return await self._hand_on(request, header.consumer_group, header.client_id, request.body)

    @handles(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyResultRequest)
    async def consume_directly(self, header: ConsumeMessageDirectlyResultRequest, request: Command) -> Answer:
        """Have a client consume one message, and say how that went."""
        if not header.msg_id or not header.client_id:
            remark = "clientId and msgId have to say who consumes what; msgId is the offset id of the message"
            return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        record = await self._queries.record_at(decode_offset_id(header.msg_id).commit_log_offset)
        if record is None:
            return Answer(
                ResponseCode.SYSTEM_ERROR, remark=f"there is no message with the id {header.msg_id}"
            )
        fields = {**request.fields(), "brokerName": self._context.settings.broker.broker_name}
        return await self._hand_on(request, header.consumer_group, header.client_id, record, fields)

    async def _hand_on(
        self,
        request: Command,
        group: str,
        client_id: str,
        body: Body,
        fields: dict[str, str | None] | None = None,
    ) -> Answer:
        """Ask a client what was asked of the broker, and answer what it answers."""
        client = self._context.clients.find_consumer(group, client_id)
        if client is None:
            remark = f"The Consumer <{group}> <{client_id}> not online"
            return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        if client.version < V3_1_8_SNAPSHOT:
            remark = (
                f"The Consumer <{client_id}> Version <{version_name(client.version)}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT"
            )
            return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        try:
            answer = await client.connection.call(
                request.code, fields or request.fields(), body, timeout_s=ASK_CLIENT_S
            )
        except CallTimeoutError as error:
            remark = f"consumer <{group}> <{client_id}> Timeout: {error.message}"
            return Answer(ResponseCode.CONSUME_MSG_TIMEOUT, remark=remark)
        except CometError as error:
            remark = f"invoke consumer <{group}> <{client_id}> Exception: {error.message}"
            return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        return Answer(answer.code, body=answer.body, remark=answer.remark, fields=answer.fields() or None)

    @handles(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GetConsumerStatusRequest)
    async def consumer_status(self, header: GetConsumerStatusRequest) -> Answer:
        """The offsets that the clients of a group hold in a topic; of one client if it is named."""
        group = self._context.clients.consumers.get(header.group)
        if group is None:
            remark = f"No Any Consumer online in the consumer group: [{header.group}]"
            return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        clients = list(group.members.values())
        for client in clients:
            if client.version < V3_0_7_SNAPSHOT:
                remark = f"the client does not support this feature. version={version_name(client.version)}"
                return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        asked = [client for client in clients if header.client_addr in (None, "", client.client_id)]
        tables = await asyncio.gather(*(self._status_of(client, header) for client in asked))
        statuses = {
            client.client_id: table for client, table in zip(asked, tables, strict=True) if table is not None
        }
        return Answer(body=fastjson.dumps({"consumerTable": statuses}))

    @staticmethod
    async def _status_of(client: Client, header: GetConsumerStatusRequest) -> object:
        fields = encode_fields(GetConsumerStatusRequest(topic=header.topic, group=header.group))
        try:
            answer = await client.connection.call(
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, fields, timeout_s=ASK_STATUS_S
            )
            if answer.code != ResponseCode.SUCCESS or not answer.body:
                return None
            said = await asyncio.to_thread(fastjson.loads, answer.body, max_chars=MAX_STATUS_CHARS)
        except CometError:  # a client that does not answer is left out
            return None
        return said.get("messageQueueTable", {}) if isinstance(said, dict) else None
