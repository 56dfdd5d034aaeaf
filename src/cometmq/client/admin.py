"""Administration in asyncio: topics, groups, offsets and messages of a cluster.

Rules kept here:
- What concerns a cluster is done on every master of it; the answer of each is awaited, and the first failure
  is raised.
- A topic that was created can be used when `create_topic` returns: the name servers know it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, Unpack

import msgspec

from cometmq.client.admin_bodies import ClusterInfo, QueueProgress, QueueStatus, decode_offset_table
from cometmq.client.identity import client_id
from cometmq.client.instance import ClientInstance
from cometmq.client.names import TEMPLATE_TOPIC, TRACE_TOPIC, check_group, check_topic
from cometmq.client.queue_calls import QueueCalls
from cometmq.client.settings import ClientOptions, ClientSettings
from cometmq.model.errors import ClientError, HeaderError, ResponseError, RouteNotFoundError, StateError
from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.model.route import MASTER_ID, TopicRoute
from cometmq.model.subscription import SubscriptionGroupConfig
from cometmq.model.topic import PERM_READ, PERM_WRITE
from cometmq.wire.bodies.json_body import decode_json_body
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import Command
from cometmq.wire.header import Header
from cometmq.wire.headers.group import DeleteSubscriptionGroupRequest, GetConsumeStatsRequest
from cometmq.wire.headers.namesrv import DeleteTopicFromNamesrvRequest
from cometmq.wire.headers.pull import QueryMessageRequest, ViewMessageRequest
from cometmq.wire.headers.topic import CreateTopicRequest, DeleteTopicRequest, GetTopicStatsInfoRequest
from cometmq.wire.ids import decode_offset_id
from cometmq.wire.record_walk import RecordWalk, to_stored_message

if TYPE_CHECKING:
    from cometmq.client.trace_query import MessageTrace

_ROUTE_POLL_S: Final = 0.05
FOR_EVER_MS: Final = 2**63 - 1


class _TopicList(msgspec.Struct, rename="camel"):
    topic_list: list[str] = []


class Admin:
    """Looks after a cluster."""

    def __init__(self, settings: ClientSettings | None = None, **options: Unpack[ClientOptions]) -> None:
        if settings is not None and options:
            raise TypeError("give settings, or keywords, not both")
        self.settings = settings or ClientSettings(**options)
        self._running: ClientInstance | None = None

    async def start(self) -> None:
        """Make ready; connections are made when they are needed."""
        if self._running is None:
            self._running = ClientInstance(client_id(self.settings), self.settings)

    async def stop(self) -> None:
        instance, self._running = self._running, None
        if instance is not None:
            instance.check_usable()
            await instance.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def _instance(self) -> ClientInstance:
        if self._running is None:
            raise StateError("the admin client is not running; use it between start and stop")
        self._running.check_usable()
        return self._running

    # Topics.

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        cluster: str | None = None,
        perm: int = PERM_READ | PERM_WRITE,
        order: bool = False,
        attributes: str | None = None,
    ) -> None:
        """Create a topic with this many queues on every master, or change it.

        `attributes` are changes such as `+message.type=FIFO,+cleanup.policy=COMPACTION`.
        """
        check_topic(topic)
        if queues < 1:
            raise ClientError(f"a topic needs at least one queue, not {queues}")
        header = CreateTopicRequest(
            topic=topic,
            default_topic=TEMPLATE_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=order,
            attributes=attributes,
        )
        masters = await self.masters(cluster)
        await asyncio.gather(
            *(self._ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header) for address in masters.values())
        )
        await self._wait_for_queues(topic, set(masters), queues)

    async def _wait_for_queues(self, topic: str, names: set[str], queues: int) -> None:
        routes = self._instance.routes
        try:
            async with asyncio.timeout(self.settings.call_timeout_s):
                while True:
                    await routes.refresh(topic)
                    known = routes.known(topic)
                    ready = {
                        each.broker_name
                        for each in (known.route.queue_datas if known else ())
                        if each.write_queue_nums == queues
                    }
                    if names <= ready:
                        return
                    await asyncio.sleep(_ROUTE_POLL_S)
        except TimeoutError:
            raise RouteNotFoundError(
                f"topic {topic} was created, but the name server does not show it yet; look again later"
            ) from None

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic and its messages from every broker, and its route from every name server."""
        header = DeleteTopicRequest(topic=topic)
        masters = await self.masters(cluster)
        await asyncio.gather(
            *(self._ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, header) for address in masters.values())
        )
        instance = self._instance
        for address in instance.name_servers.addresses:
            await self._ask(
                address, RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicFromNamesrvRequest(topic=topic)
            )
        instance.routes.forget_topics(set())

    async def topics(self) -> list[str]:
        """The names of all topics."""
        code, timeout_s = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, self.settings.call_timeout_s
        answer = await self._instance.name_servers.call_ok(code, timeout_s=timeout_s)
        return sorted(decode_json_body(_TopicList, answer.body).topic_list)

    async def topic_route(self, topic: str) -> TopicRoute | None:
        """Where the queues of a topic are; None if no name server knows the topic."""
        routes = self._instance.routes
        routes.forget_topics(set())
        return await routes.of(topic)

    async def topic_status(self, topic: str) -> dict[MessageQueue, QueueStatus]:
        """What each queue of a topic holds."""
        status: dict[MessageQueue, QueueStatus] = {}
        for address in (await self._masters_of(topic)).values():
            header = GetTopicStatsInfoRequest(topic=topic)
            answer = await self._ask(address, RequestCode.GET_TOPIC_STATS_INFO, header)
            status |= decode_offset_table(QueueStatus, answer.body)
        return dict(sorted(status.items()))

    # Clusters.

    async def cluster_info(self) -> ClusterInfo:
        """All brokers and clusters."""
        code, timeout_s = RequestCode.GET_BROKER_CLUSTER_INFO, self.settings.call_timeout_s
        answer = await self._instance.name_servers.call_ok(code, timeout_s=timeout_s)
        return decode_json_body(ClusterInfo, answer.body)

    async def masters(self, cluster: str | None = None) -> Mapping[str, str]:
        """The masters of a cluster, or of all, by broker name."""
        info = await self.cluster_info()
        if cluster is not None and cluster not in info.cluster_addr_table:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise ClientError(f"there is no cluster {cluster!r}; the name server knows: {known}")
        found = {
            name: broker.broker_addrs[MASTER_ID]
            for name, broker in sorted(info.broker_addr_table.items())
            if MASTER_ID in broker.broker_addrs and cluster in (None, broker.cluster)
        }
        if not found:
            raise ClientError("the name server knows no master; start a broker first")
        return found

    # Groups.

    async def create_group(self, group: str | SubscriptionGroupConfig, *, cluster: str | None = None) -> None:
        """Create a consumer group on every master, or change its settings."""
        config = SubscriptionGroupConfig(group) if isinstance(group, str) else group
        check_group(config.group_name)
        body = msgspec.json.encode(config, order="sorted")
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        masters = await self.masters(cluster)
        await asyncio.gather(*(self._ask(address, code, body=body) for address in masters.values()))

    async def delete_group(
        self, group: str, *, clean_offsets: bool = False, cluster: str | None = None
    ) -> None:
        """Delete a consumer group from every master, and its offsets if asked to."""
        header = DeleteSubscriptionGroupRequest(group_name=group, clean_offset=clean_offsets)
        masters = await self.masters(cluster)
        code = RequestCode.DELETE_SUBSCRIPTIONGROUP
        await asyncio.gather(*(self._ask(address, code, header) for address in masters.values()))

    async def consumer_progress(
        self, group: str, topic: str | None = None
    ) -> dict[MessageQueue, QueueProgress]:
        """How far a group is in its queues, of one topic or of all that it reads."""
        progress: dict[MessageQueue, QueueProgress] = {}
        masters = await (self.masters() if topic is None else self._masters_of(topic))
        for address in masters.values():
            header = GetConsumeStatsRequest(consumer_group=group, topic=topic)
            answer = await self._ask(address, RequestCode.GET_CONSUME_STATS, header)
            progress |= decode_offset_table(QueueProgress, answer.body)
        return dict(sorted(progress.items()))

    async def consumer_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The offset that a group has committed for a queue; None if it has none."""
        return await QueueCalls(self._instance).committed(group, queue)

    # Offsets of queues.

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue will get."""
        return await QueueCalls(self._instance).max_offset(queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message of a queue."""
        return await QueueCalls(self._instance).min_offset(queue)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset that a queue had reached at a time."""
        return await QueueCalls(self._instance).search_offset(queue, timestamp_ms)

    # Messages.

    async def view_message(self, offset_msg_id: str) -> StoredMessage:
        """The message with this offset id (`SendReceipt.offset_msg_id`), from the broker that it names."""
        place = decode_offset_id(offset_msg_id)
        header = ViewMessageRequest(offset=place.commit_log_offset)
        answer = await self._ask(str(place.store_host), RequestCode.VIEW_MESSAGE_BY_ID, header)
        messages = _messages(answer, "")
        if len(messages) != 1:
            raise HeaderError(f"the answer for {offset_msg_id} has {len(messages)} messages and not one")
        return messages[0]

    async def query_messages(
        self,
        topic: str,
        key: str,
        *,
        max_messages: int = 32,
        begin_ms: int = 0,
        end_ms: int = FOR_EVER_MS,
    ) -> list[StoredMessage]:
        """The messages of a topic with this key, the oldest first."""
        found = await self._query(topic, key, max_messages, begin_ms, end_ms, unique=False)
        return [message for message in found if key in message.keys][:max_messages]

    async def message_by_id(self, topic: str, msg_id: str) -> StoredMessage | None:
        """The message of a topic with this id of its producer (`SendReceipt.msg_id`)."""
        found = await self._query(topic, msg_id, 32, 0, FOR_EVER_MS, unique=True)
        return next((message for message in found if message.msg_id == msg_id), None)

    async def message_trace(
        self, msg_id: str, *, trace_topic: str = TRACE_TOPIC, max_messages: int = 64
    ) -> MessageTrace:
        """What became of the message with this id (`SendReceipt.msg_id`), as its clients wrote it down."""
        from cometmq.client.trace_query import message_trace  # which is about this class itself

        return await message_trace(self, msg_id, trace_topic=trace_topic, max_messages=max_messages)

    async def _query(
        self, topic: str, key: str, count: int, begin_ms: int, end_ms: int, *, unique: bool
    ) -> list[StoredMessage]:
        header = QueryMessageRequest(
            topic=topic,
            key=key,
            max_num=count,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            unique_key_query=unique,
        )
        messages: list[StoredMessage] = []
        for name, address in (await self._masters_of(topic)).items():
            try:
                answer = await self._ask(address, RequestCode.QUERY_MESSAGE, header)
            except ResponseError as error:
                if error.code == ResponseCode.QUERY_NOT_FOUND:
                    continue
                raise
            messages += _messages(answer, name)
        wanted = [message for message in messages if message.topic == topic]
        return sorted(wanted, key=lambda message: message.store_timestamp_ms)

    # How brokers are asked.

    async def _masters_of(self, topic: str) -> Mapping[str, str]:
        route = await self.topic_route(topic)
        if route is None:
            raise RouteNotFoundError(f"no name server knows topic {topic}")
        return {
            broker.broker_name: broker.broker_addrs[MASTER_ID]
            for broker in route.broker_datas
            if MASTER_ID in broker.broker_addrs
        }

    async def _ask(
        self, address: str, code: RequestCode, header: Header | None = None, *, body: bytes = b""
    ) -> Command:
        timeout_s = self.settings.call_timeout_s
        return await self._instance.remoting.call_ok(address, code, header, body=body, timeout_s=timeout_s)


def _messages(answer: Command, broker_name: str) -> Sequence[StoredMessage]:
    records = RecordWalk(answer.body, decompress_body=True)
    return [to_stored_message(record, broker_name) for record in records]
