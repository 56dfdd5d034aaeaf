"""Heartbeats, members of groups, queue locks and queue assignment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from cometmq.broker.context import BrokerContext
from cometmq.broker.groups.assignment import POP, PULL
from cometmq.broker.groups.online import Client, refuse_large, refuse_large_body
from cometmq.broker.groups.subscriptions import is_tag_type
from cometmq.broker.handlers.refusals import invalid
from cometmq.broker.pull.sql_filters import Compiled, compile_all
from cometmq.broker.time_slices import Steps, encode_in_thread, run_at_once, run_sliced
from cometmq.model.errors import CometError
from cometmq.model.names import RETRY_PREFIX
from cometmq.model.queue import MessageQueue
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, Result, handles
from cometmq.store.tables.tables import MessageRequestMode
from cometmq.wire.bodies.assignment import QueryAssignmentRequest, encode_assignments
from cometmq.wire.bodies.consumer_info import LockRequest, decode_lock_request, encode_locked
from cometmq.wire.bodies.heartbeat import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    SubscriptionData,
    decode_heartbeat,
)
from cometmq.wire.bodies.json_body import decode_json_body
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.session import (
    GetConsumerListByGroupRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    LockBatchMqRequest,
    UnlockBatchMqRequest,
    UnregisterClientRequest,
)
from cometmq.wire.json import fastjson
from cometmq.wire.json.pretty import dumps_table
from cometmq.wire.sql92.expression import Sql92Error, compile_sql

_MANY_GROUPS: Final = 20
"""A heartbeat with more groups is registered in several turns."""
_GONE: Final = Answer(ResponseCode.SYSTEM_ERROR, remark="the connection was closed meanwhile")
MAX_QUEUES_AT_ONCE: Final = 16_384
"""A request about more queues is refused."""


class _ClientConfig(msgspec.Struct, rename="camel"):
    """The body of CHECK_CLIENT_CONFIG."""

    client_id: str | None = None
    group: str | None = None
    namespace: str | None = None
    subscription_data: SubscriptionData | None = None


class SessionHandlers:
    """Heartbeats and what follows from them."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._compiler = asyncio.Lock()
        """One heartbeat at a time has its expressions compiled: compiling takes the interpreter's time."""
        self._compiling: set[Connection] = set()

    @handles(RequestCode.HEART_BEAT, HeartbeatRequest)
    def heartbeat(self, header: HeartbeatRequest, request: Command, connection: Connection) -> Result:
        """Register everything that a client is, as soon as its SQL92 expressions are compiled."""
        refuse_large_body(request.body)
        data = decode_heartbeat(request.body)
        refuse_large(data)
        texts = self._context.filters.to_compile(data.consumer_data_set)
        if texts:
            return self._compile_first(texts, data, request, connection)
        steps = self._register_all(data, request, connection, {})
        if len(data.consumer_data_set) + len(data.producer_data_set) > _MANY_GROUPS:
            return run_sliced(steps)
        return run_at_once(steps)

    async def _compile_first(
        self, texts: list[str], data: HeartbeatData, request: Command, connection: Connection
    ) -> Answer:
        if connection in self._compiling:
            remark = "the SQL92 expressions of the last heartbeat are still being compiled; try again later"
            return Answer(ResponseCode.SYSTEM_BUSY, remark=remark)
        self._compiling.add(connection)
        try:
            async with self._compiler:
                compiled = await asyncio.to_thread(compile_all, texts)
        finally:
            self._compiling.discard(connection)
        if not connection.is_open:
            return _GONE
        return await run_sliced(self._register_all(data, request, connection, compiled))

    def _register_all(
        self,
        data: HeartbeatData,
        request: Command,
        connection: Connection,
        compiled: Mapping[str, Compiled],
    ) -> Steps[Answer]:
        """Register a group a step; what is refused of it does not hinder the rest."""
        client = Client(
            client_id=data.client_id,
            connection=connection,
            language=request.language or "OTHER",
            version=request.version,
            seen_ms=self._context.clock.monotonic_ms(),
        )
        refusal: CometError | None = None
        needs_full = data.heartbeat_fingerprint == 0
        for consumer in data.consumer_data_set:
            if self._is_unwanted(consumer):
                continue
            try:
                needs_full |= self._register_consumer(consumer, client, data, compiled)
            except CometError as error:
                refusal = error
            yield
            if not connection.is_open:
                return _GONE
        config = self._context.settings.broker
        if config.enable_register_producer or not config.reject_transaction_message:
            for producer in data.producer_data_set:
                self._context.clients.register_producer(producer.group_name, client)
                yield
                if not connection.is_open:
                    return _GONE
        if refusal is not None:
            raise refusal
        return Answer(header=HeartbeatResponse(is_support_heart_beat_v2=True, is_sub_change=needs_full))

    def _is_unwanted(self, consumer: ConsumerData) -> bool:
        return (
            self._context.settings.broker.reject_pull_consumer_enable
            and consumer.consume_type is ConsumeType.CONSUME_ACTIVELY
        )

    def _register_consumer(
        self,
        consumer: ConsumerData,
        client: Client,
        data: HeartbeatData,
        compiled: Mapping[str, Compiled],
    ) -> bool:
        """Register one consumer; returns whether its subscriptions have to be sent in full."""
        context, name = self._context, consumer.group_name
        group_config = context.groups.find(name)
        if group_config is None:
            return False
        ordered = any(
            (topic := context.topics.get(each.topic)) is not None and topic.order
            for each in consumer.subscription_data_set
        )
        retry = context.topics.ensure_retry_topic(
            name, group_config.retry_queue_nums, has_unit_sub=consumer.unit_mode
        )
        if retry is not None and retry.order != ordered and not data.without_sub:
            context.topics.update(msgspec.structs.replace(retry, order=ordered))
        known = context.clients.consumers.get(name)
        fingerprint = data.heartbeat_fingerprint
        differs = known is not None and known.fingerprint != fingerprint
        without = fingerprint != 0 and data.without_sub
        if (
            without
            and context.settings.broker.reject_inconsistent_subscription
            and (known is None or known.client(client.client_id) is None)
        ):
            return True  # what it subscribes to decides whether it may come in
        context.clients.register_consumer(consumer, client, with_subscriptions=not without, compiled=compiled)
        group = context.clients.consumers[name]
        group.fingerprint = fingerprint
        # A broker that was restarted does not know what was left out.
        return differs or (without and not group.subscriptions)

    @handles(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequest)
    def unregister(self, header: UnregisterClientRequest, connection: Connection) -> Answer:
        """A client leaves its groups."""
        if header.producer_group is not None:
            self._context.clients.unregister_producer(header.producer_group, connection)
        if header.consumer_group is not None:
            self._context.clients.unregister_consumer(header.consumer_group, connection)
        return Answer()

    @handles(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequest)
    def consumer_list(self, header: GetConsumerListByGroupRequest) -> Answer:
        """The clients among whom the queues of a group are shared out."""
        group = self._context.clients.consumers.get(header.consumer_group)
        if group is None:
            remark = f"no consumer for this group, {header.consumer_group}"
            return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        body = fastjson.dumps({"consumerIdList": group.client_ids})
        return Answer(body=body, remark=group.noted_difference)

    @handles(RequestCode.CHECK_CLIENT_CONFIG)
    def check_client_config(self, request: Command) -> Answer:
        """Whether a subscription can be served, asked by a client before it starts."""
        subscription = decode_json_body(_ClientConfig, request.body).subscription_data
        if subscription is None or is_tag_type(subscription.expression_type):
            return Answer()
        if not self._context.settings.broker.enable_property_filter:
            wanted = subscription.expression_type
            remark = f"The broker does not support consumer to filter message by {wanted}"
            return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        try:
            compile_sql(subscription.sub_string)
        except Sql92Error as error:
            return Answer(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark=error.message)
        return Answer()


def _lock_request(request: Command) -> LockRequest:
    asked = decode_lock_request(request.body)
    if len(asked.mq_set or ()) > MAX_QUEUES_AT_ONCE:
        raise invalid(
            f"{len(asked.mq_set or ())} queues are too many for one request; lock or unlock at most "
            f"{MAX_QUEUES_AT_ONCE} at once"
        )
    return asked


class LockHandlers:
    """LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._locks = context.locks

    def _is_there(self, queue: MessageQueue) -> bool:
        return self._context.topics.has_queue(queue.topic, queue.queue_id)

    @handles(RequestCode.LOCK_BATCH_MQ, LockBatchMqRequest)
    def lock(self, request: Command) -> Answer:
        """Lock queues for a client, or renew its locks; queues that are not there are not locked."""
        asked = _lock_request(request)
        queues = filter(self._is_there, asked.queues)
        locked = self._locks.lock(asked.consumer_group, asked.client_id, queues)
        return Answer(body=encode_locked(locked))

    @handles(RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqRequest)
    def unlock(self, request: Command) -> Answer:
        """Give up the locks of a client."""
        asked = _lock_request(request)
        self._locks.unlock(asked.consumer_group, asked.client_id, asked.queues)
        return Answer()


class AssignmentHandlers:
    """QUERY_ASSIGNMENT, and the modes that it tells."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._assignment = context.assignment

    @handles(RequestCode.QUERY_ASSIGNMENT)
    async def query(self, request: Command) -> Answer:
        """The queues of a consumer."""
        query = decode_json_body(QueryAssignmentRequest, request.body)
        mode = self._context.request_modes.get(query.topic, query.consumer_group)
        queues = await self._assignment.assign(query, mode)
        return Answer(
            body=await encode_in_thread(lambda: encode_assignments(queues, mode.mode), len(queues or ()))
        )

    @handles(RequestCode.SET_MESSAGE_REQUEST_MODE)
    async def set_mode(self, request: Command) -> Answer:
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

    @handles(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    def all_modes(self) -> Answer:
        """All modes, for slaves."""
        return Answer(body=dumps_table(self._context.request_modes.snapshot(), pretty=False))
