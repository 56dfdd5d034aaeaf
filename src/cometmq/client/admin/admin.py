"""The admin client: topics, consumer groups, offsets, messages and servers of a cluster, in asyncio.

Rules kept here:
- A request about a cluster goes to every master, one about name servers to each of them, because they do not
  tell each other. All responses are awaited, and the first failure is raised.
- At most `MOST_AT_ONCE` requests are under way for one question, however many brokers, topics or groups it
  is about.
- A topic can be used when `create_topic` returns: the name servers know it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Final, Literal, TypeVar, Unpack

import msgspec

from cometmq.client.admin.results import (
    BrokerProgress,
    ClusterInfo,
    ConsumeTimeSpan,
    GroupConnection,
    GroupMember,
    MemberInfo,
    MessageTrack,
    ProducerInfo,
    QueueProgress,
    QueueStatus,
    RequestMode,
    SettingsChanged,
    TrackType,
    decode_broker_progress,
    decode_member_info,
    decode_offset_table,
    decode_time_spans,
)
from cometmq.client.consumer.broker_calls import BrokerCalls
from cometmq.client.consumer.pull_request import PullKind, PullReply, PullRequests
from cometmq.client.instance.group_client import AsyncClient
from cometmq.client.instance.identity import client_id
from cometmq.client.instance.instance import ClientInstance
from cometmq.client.instance.routes import order_queues
from cometmq.client.names import check_group, check_topic
from cometmq.client.options import documented
from cometmq.client.settings import ClientOptions, ClientSettings, settings_of
from cometmq.client.subscription import Expression, subscription_of
from cometmq.client.trace.query import MessageTrace, gather
from cometmq.client.trace.records import decode_records
from cometmq.model.errors import (
    ClientError,
    HeaderError,
    NotFoundError,
    ResponseError,
    RouteNotFoundError,
    StateError,
)
from cometmq.model.message import StoredMessage
from cometmq.model.names import DEFAULT_TOPIC, ORDER_TOPIC_NAMESPACE, TRACE_TOPIC
from cometmq.model.queue import MessageQueue
from cometmq.model.route import MASTER_ID, TopicRoute
from cometmq.model.subscription import SubscriptionGroupConfig
from cometmq.model.times import time_ms
from cometmq.model.topic import PERM_READ, PERM_WRITE, TopicConfig
from cometmq.wire.bodies.consumer_info import ConsumeDirectlyResult
from cometmq.wire.bodies.heartbeat import ALL, ConsumeType, MessageModel
from cometmq.wire.bodies.json_body import decode_answer
from cometmq.wire.bodies.queue_table import decode_queue_table
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Body, Command
from cometmq.wire.header.schema import Header
from cometmq.wire.headers.group import (
    DeleteSubscriptionGroupRequest,
    GetAllSubscriptionGroupRequest,
    GetConsumeStatsInBroker,
    GetConsumeStatsRequest,
    QueryConsumeTimeSpanRequest,
    UpdateGroupForbiddenRequest,
)
from cometmq.wire.headers.namesrv import (
    AddWritePermOfBrokerRequest,
    AddWritePermOfBrokerResponse,
    DeleteKVConfigRequest,
    DeleteTopicFromNamesrvRequest,
    GetKVConfigRequest,
    GetKVConfigResponse,
    GetKVListByNamespaceRequest,
    PutKVConfigRequest,
    WipeWritePermOfBrokerRequest,
    WipeWritePermOfBrokerResponse,
)
from cometmq.wire.headers.offset import CloneGroupOffsetRequest, ResetOffsetRequest
from cometmq.wire.headers.pull import QueryMessageRequest, ViewMessageRequest
from cometmq.wire.headers.send import ResumeCheckHalfMessageRequest
from cometmq.wire.headers.session import (
    ConsumeMessageDirectlyResultRequest,
    GetConsumerConnectionListRequest,
    GetConsumerRunningInfoRequest,
    GetProducerConnectionListRequest,
)
from cometmq.wire.headers.topic import (
    CreateTopicRequest,
    DeleteTopicRequest,
    GetAllTopicConfigRequest,
    GetTopicConfigRequest,
    GetTopicStatsInfoRequest,
    QueryTopicConsumeByWhoRequest,
)
from cometmq.wire.java_properties import format_properties, parse_properties
from cometmq.wire.record.ids import decode_offset_id
from cometmq.wire.record.walk import RecordWalk, to_stored_message
from cometmq.wire.takeovers import ClusterInfoRequest

MOST_AT_ONCE: Final = 16
FOR_EVER_MS: Final = 2**63 - 1
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""The group of tools, which every broker knows; it commits nothing."""
_ROUTE_POLL_S: Final = 0.05

K = TypeVar("K")
T = TypeVar("T")


async def for_each(keys: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> dict[K, T]:
    """Ask about each key, several at once; the first failure is raised."""
    gate = asyncio.Semaphore(MOST_AT_ONCE)

    async def asked(key: K) -> T:
        async with gate:
            return await ask(key)

    wanted = list(keys)
    answers = await asyncio.gather(*(asked(key) for key in wanted))
    return dict(zip(wanted, answers, strict=True))


class _Body(msgspec.Struct, rename="camel"):
    """The body of a response, which has one of these members."""

    table: dict[str, str] = {}
    topic_list: list[str] = []
    topic_config_table: dict[str, TopicConfig] = {}
    group_list: list[str] = []
    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
    connection_set: tuple[GroupMember, ...] = ()
    data: dict[str, tuple[ProducerInfo, ...]] = {}
    message_request_mode_map: dict[str, dict[str, RequestMode]] = {}
    readable: bool = True


@documented(ClientSettings)
class Admin(AsyncClient):
    """Manages a cluster."""

    def __init__(self, settings: ClientSettings | None = None, **options: Unpack[ClientOptions]) -> None:
        self.settings = settings_of(ClientSettings, settings, options, type(self))
        self._running: ClientInstance | None = None

    # Lifecycle.

    async def start(self) -> None:
        """Make the client ready; connections are opened when they are needed."""
        if self._running is None:
            instance = ClientInstance(client_id(self.settings), self.settings)
            if not instance.name_servers.addresses:
                await instance.name_servers.look_up()
            self._running = instance

    async def stop(self) -> None:
        """Close all connections; a second call does nothing."""
        instance, self._running = self._running, None
        if instance is not None:
            instance.fork_guard.check()
            await instance.stop()

    @property
    def _instance(self) -> ClientInstance:
        if self._running is None:
            raise StateError("the admin client is not running; use it between start and stop")
        self._running.fork_guard.check()
        return self._running

    @property
    def _calls(self) -> BrokerCalls:
        return BrokerCalls(self._instance)

    async def _ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes = b"",
        timeout_s: float | None = None,
    ) -> Command:
        timeout_s = self.settings.call_timeout_s if timeout_s is None else timeout_s
        return await self._instance.remoting.call_ok(address, code, header, body=body, timeout_s=timeout_s)

    async def _ask_all(
        self, addresses: Iterable[str], code: RequestCode, header: Header | None = None, *, body: bytes = b""
    ) -> None:
        await asyncio.gather(*(self._ask(address, code, header, body=body) for address in addresses))

    async def _ask_masters(self, topic: str | None, code: RequestCode, header: Header) -> list[Command]:
        """Ask the masters of a topic, or of all clusters, one after the other."""
        masters = await (self.masters() if topic is None else self._masters_of(topic))
        return [await self._ask(address, code, header) for address in masters.values()]

    async def _ask_name_servers(self, code: RequestCode, header: Header) -> list[Command]:
        """Ask all name servers, one after the other."""
        return [await self._ask(address, code, header) for address in self.name_servers()]

    # Topics.

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        write_queues: int | None = None,
        cluster: str | None = None,
        perm: int = PERM_READ | PERM_WRITE,
        order: bool = False,
        attributes: str | None = None,
    ) -> None:
        """Create a topic with this many queues on every master, or change it.

        `write_queues` is the number of queues that producers use, if they should use fewer. `order` keeps
        messages of one sharding key in order even if a broker fails; name servers store the queues of the
        topic then. `attributes` are changes such as `+message.type=FIFO,+cleanup.policy=DELETE`.
        """
        check_topic(topic)
        if queues < 1:
            raise ClientError(f"a topic needs at least one queue, not {queues}")
        config = TopicConfig(
            topic, queues, queues if write_queues is None else write_queues, perm, order=order
        )
        masters = await self.masters(cluster)
        await asyncio.gather(
            *(self.put_topic(address, config, attributes=attributes) for address in masters.values())
        )
        if order:
            await self.put_order_config(topic, dict.fromkeys(masters, config.write_queue_nums))
        await self.await_topic(config, *masters)

    async def put_topic(self, broker: str, config: TopicConfig, *, attributes: str | None = None) -> None:
        """Create or change a topic on the broker at this address; `attributes` as in `create_topic`."""
        header = CreateTopicRequest(
            topic=config.topic_name,
            default_topic=DEFAULT_TOPIC,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            attributes=attributes,
        )
        await self._ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def await_topic(self, config: TopicConfig, *broker_names: str) -> None:
        """Wait until the name server shows a created or changed topic on these brokers.

        A broker registers its topics with no more permissions than it has itself; after the timeout, matching
        numbers of queues are enough.
        """
        routes, topic = self._instance.routes, config.topic_name
        numbers: set[str] = set()
        try:
            async with asyncio.timeout(self.settings.call_timeout_s):
                while True:
                    await routes.refresh(topic)
                    known = routes.known(topic)
                    shown = [
                        each
                        for each in (known.route.queue_datas if known else ())
                        if each.read_queue_nums == config.read_queue_nums
                        and each.write_queue_nums == config.write_queue_nums
                    ]
                    numbers = {each.broker_name for each in shown}
                    allowed = {each.broker_name for each in shown if each.perm == config.perm}
                    if allowed.issuperset(broker_names):
                        return
                    await asyncio.sleep(_ROUTE_POLL_S)
        except TimeoutError:
            if not numbers.issuperset(broker_names):
                raise RouteNotFoundError(
                    f"topic {topic} was changed, but the name server does not show it yet; look again later"
                ) from None

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic and its messages from every broker, and its route from every name server.

        Its order configuration is deleted as well: a later topic of this name would be an order topic.
        """
        masters = await self.masters(cluster)
        await self._ask_all(
            masters.values(), RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic=topic)
        )
        header = DeleteTopicFromNamesrvRequest(topic=topic)
        await self._ask_name_servers(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        await self.delete_kv_config(ORDER_TOPIC_NAMESPACE, topic)
        self._instance.routes.forget_topics(set())

    async def topics(self) -> list[str]:
        """The names of all topics."""
        code, timeout_s = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, self.settings.call_timeout_s
        answer = await self._instance.name_servers.call_ok(code, timeout_s=timeout_s)
        return sorted(decode_answer(_Body, answer.body).topic_list)

    async def topic_configs(self, broker: str) -> dict[str, TopicConfig]:
        """The configurations of all topics on the broker at this address."""
        answer = await self._ask(broker, RequestCode.GET_ALL_TOPIC_CONFIG, GetAllTopicConfigRequest())
        return decode_answer(_Body, answer.body).topic_config_table

    async def topic_config(self, broker: str, topic: str) -> TopicConfig | None:
        """The configuration of a topic on the broker at this address; None if it is not there."""
        try:
            answer = await self._ask(broker, RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequest(topic=topic))
        except ResponseError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        return decode_answer(TopicConfig, answer.body)

    async def topic_route(self, topic: str) -> TopicRoute | None:
        """The route of a topic: its brokers and queues; None if no name server knows the topic."""
        routes = self._instance.routes
        routes.forget_topics(set())
        return await routes.of(topic)

    async def topic_status(self, topic: str) -> dict[MessageQueue, QueueStatus]:
        """The minimum and maximum offset of each queue of a topic, and when it was last written."""
        header = GetTopicStatsInfoRequest(topic=topic)
        answers = await self._ask_masters(topic, RequestCode.GET_TOPIC_STATS_INFO, header)
        return _merged(decode_offset_table(QueueStatus, answer.body) for answer in answers)

    async def groups_of_topic(self, topic: str) -> list[str]:
        """The consumer groups that read a topic, or have read it."""
        header = QueryTopicConsumeByWhoRequest(topic=topic)
        answers = await self._ask_masters(topic, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
        return sorted({group for each in answers for group in decode_answer(_Body, each.body).group_list})

    async def order_config(self, topic: str) -> dict[str, int]:
        """The number of queues on each broker of an order topic; empty if it has no order configuration."""
        return order_queues(topic, await self.kv_config(ORDER_TOPIC_NAMESPACE, topic) or "")

    async def put_order_config(self, topic: str, queues: Mapping[str, int]) -> None:
        """Store the number of queues on each broker of an order topic; without any, delete them.

        Brokers mark the topic as an order topic when they register next. Producers use these queues if the
        name servers' `orderMessageEnable` is set.
        """
        if not queues:
            await self.delete_kv_config(ORDER_TOPIC_NAMESPACE, topic)
            return
        value = ";".join(f"{broker_name}:{count}" for broker_name, count in queues.items())
        await self.put_kv_config(ORDER_TOPIC_NAMESPACE, topic, value)

    # Servers.

    async def cluster_info(self, namesrv: str | None = None) -> ClusterInfo:
        """All brokers and clusters, as the current name server knows them, or the one at this address."""
        code, header = RequestCode.GET_BROKER_CLUSTER_INFO, ClusterInfoRequest(takeovers=True)
        if namesrv is not None:
            answer = await self._ask(namesrv, code, header)
        else:
            timeout_s = self.settings.call_timeout_s
            answer = await self._instance.name_servers.call_ok(code, header, timeout_s=timeout_s)
        return decode_answer(ClusterInfo, answer.body)

    async def masters(self, cluster: str | None = None) -> Mapping[str, str]:
        """The addresses of the masters of a cluster, or of all clusters, by broker name."""
        info = await self.cluster_info()
        if cluster is not None and cluster not in info.cluster_addr_table:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise NotFoundError(f"there is no cluster {cluster!r}; the name server knows: {known}")
        found = {
            name: broker.broker_addrs[MASTER_ID]
            for name, broker in sorted(info.broker_addr_table.items())
            if MASTER_ID in broker.broker_addrs and cluster in (None, broker.cluster)
        }
        if not found:
            raise ClientError("the name server knows no master; start a broker first")
        return found

    async def _masters_of(self, topic: str) -> Mapping[str, str]:
        route = await self.topic_route(topic)
        if route is None:
            raise RouteNotFoundError(f"no name server knows topic {topic}")
        return {
            broker.broker_name: broker.broker_addrs[MASTER_ID]
            for broker in route.broker_datas
            if MASTER_ID in broker.broker_addrs
        }

    async def broker_info(self, broker: str) -> dict[str, str]:
        """The runtime info of the broker at this address: counters, rates, disk, version."""
        answer = await self._ask(broker, RequestCode.GET_BROKER_RUNTIME_INFO)
        return decode_answer(_Body, answer.body).table

    async def broker_config(self, broker: str) -> dict[str, str]:
        """All settings of the broker at this address."""
        return _properties((await self._ask(broker, RequestCode.GET_BROKER_CONFIG)).body)

    async def set_broker_config(self, broker: str, changes: Mapping[str, str]) -> SettingsChanged:
        """Change settings of the broker at this address; it ignores keys that it does not know."""
        return await self._set_config(broker, RequestCode.UPDATE_BROKER_CONFIG, changes)

    def name_servers(self) -> tuple[str, ...]:
        """The addresses of the name servers."""
        return self._instance.name_servers.addresses

    async def name_server_config(self, namesrv: str) -> dict[str, str]:
        """All settings of the name server at this address."""
        return _properties((await self._ask(namesrv, RequestCode.GET_NAMESRV_CONFIG)).body)

    async def set_name_server_config(self, namesrv: str, changes: Mapping[str, str]) -> SettingsChanged:
        """Change settings of the name server at this address."""
        return await self._set_config(namesrv, RequestCode.UPDATE_NAMESRV_CONFIG, changes)

    async def _set_config(
        self, server: str, code: RequestCode, changes: Mapping[str, str]
    ) -> SettingsChanged:
        fields = (await self._ask(server, code, body=format_properties(changes).encode())).fields()
        pairs = (pair.partition("=") for pair in (fields.get("states") or "").split(";"))
        return SettingsChanged({key: state for key, _, state in pairs if state}, fields.get("keptIn"))

    async def wipe_write_permission(self, broker_name: str) -> int:
        """Stop producers from sending to a broker name; returns the number of topics affected."""
        header = WipeWritePermOfBrokerRequest(broker_name=broker_name)
        answers = await self._ask_name_servers(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        return max(answer.header(WipeWritePermOfBrokerResponse).wipe_topic_count for answer in answers)

    async def add_write_permission(self, broker_name: str) -> int:
        """Let producers send to a broker name again; returns the number of topics affected."""
        header = AddWritePermOfBrokerRequest(broker_name=broker_name)
        answers = await self._ask_name_servers(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        return max(answer.header(AddWritePermOfBrokerResponse).add_topic_count for answer in answers)

    async def kv_configs(self, namespace: str) -> dict[str, str]:
        """All keys and values of a namespace in the key-value configuration of the name servers."""
        code, header = RequestCode.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequest(namespace=namespace)
        answer = await self._found_in_kv(code, header)
        return {} if answer is None else decode_answer(_Body, answer.body).table

    async def kv_config(self, namespace: str, key: str) -> str | None:
        """A value in the key-value configuration of the name servers; None if there is none."""
        header = GetKVConfigRequest(namespace=namespace, key=key)
        answer = await self._found_in_kv(RequestCode.GET_KV_CONFIG, header)
        return None if answer is None else answer.header(GetKVConfigResponse).value

    async def _found_in_kv(self, code: RequestCode, header: Header) -> Command | None:
        try:
            timeout_s = self.settings.call_timeout_s
            return await self._instance.name_servers.call_ok(code, header, timeout_s=timeout_s)
        except ResponseError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def put_kv_config(self, namespace: str, key: str, value: str) -> None:
        """Store a value in the key-value configuration of every name server."""
        header = PutKVConfigRequest(namespace=namespace, key=key, value=value)
        await self._ask_name_servers(RequestCode.PUT_KV_CONFIG, header)

    async def delete_kv_config(self, namespace: str, key: str) -> None:
        """Delete a value from the key-value configuration of every name server; nothing if there is none."""
        header = DeleteKVConfigRequest(namespace=namespace, key=key)
        await self._ask_name_servers(RequestCode.DELETE_KV_CONFIG, header)

    async def producers(self, broker: str) -> dict[str, tuple[ProducerInfo, ...]]:
        """All producers that are connected to the broker at this address, by producer group."""
        return decode_answer(_Body, (await self._ask(broker, RequestCode.GET_ALL_PRODUCER_INFO)).body).data

    async def producer_connections(self, broker: str, group: str) -> tuple[GroupMember, ...]:
        """The members of a producer group that are connected to the broker at this address."""
        header = GetProducerConnectionListRequest(producer_group=group)
        try:
            answer = await self._ask(broker, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
        except ResponseError as error:
            if f"the producer group[{group}] not exist" in error.message:  # a code of its own is missing
                return ()
            raise
        return decode_answer(_Body, answer.body).connection_set

    # Consumer groups.

    async def create_group(self, group: str | SubscriptionGroupConfig, *, cluster: str | None = None) -> None:
        """Create a consumer group on every master, or change its settings."""
        config = SubscriptionGroupConfig(group) if isinstance(group, str) else group
        check_group(config.group_name)
        body = msgspec.json.encode(config, order="sorted")
        masters = await self.masters(cluster)
        await self._ask_all(masters.values(), RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)

    async def delete_group(
        self, group: str, *, clean_offsets: bool = False, cluster: str | None = None
    ) -> None:
        """Delete a consumer group from every master, with `clean_offsets` its offsets too."""
        header = DeleteSubscriptionGroupRequest(group_name=group, clean_offset=clean_offsets)
        masters = await self.masters(cluster)
        await self._ask_all(masters.values(), RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def groups(self, broker: str) -> dict[str, SubscriptionGroupConfig]:
        """The configurations of all consumer groups on the broker at this address."""
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        answer = await self._ask(broker, code, GetAllSubscriptionGroupRequest())
        return decode_answer(_Body, answer.body).subscription_group_table

    async def group_connection(self, broker: str, group: str) -> GroupConnection | None:
        """The members of a group that are connected to the broker at this address; None if there are none."""
        header = GetConsumerConnectionListRequest(consumer_group=group)
        try:
            answer = await self._ask(broker, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        except ResponseError as error:
            if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                return None
            raise
        found = decode_answer(GroupConnection, answer.body)
        return msgspec.structs.replace(found, difference=answer.remark or None)

    async def member_info(self, broker: str, group: str, client_id: str) -> MemberInfo:
        """The running info of a group member, asked through the broker at this address."""
        header = GetConsumerRunningInfoRequest(consumer_group=group, client_id=client_id)
        answer = await self._ask(broker, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        return decode_member_info(answer.body)

    async def group_permission(
        self, group: str, topic: str, *, readable: bool | None = None
    ) -> dict[str, bool]:
        """Whether a group may read a topic, by broker name; with `readable` allow it or forbid it first."""
        header = UpdateGroupForbiddenRequest(group=group, topic=topic, readable=readable)
        found: dict[str, bool] = {}
        for name, address in (await self._masters_of(topic)).items():
            answer = await self._ask(address, RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)
            found[name] = decode_answer(_Body, answer.body).readable
        return found

    async def request_modes(self, broker: str) -> list[RequestMode]:
        """The request modes that were set on the broker at this address; all other groups pull."""
        answer = await self._ask(broker, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        tables = decode_answer(_Body, answer.body).message_request_mode_map
        return [mode for _, modes in sorted(tables.items()) for _, mode in sorted(modes.items())]

    async def set_request_mode(
        self, group: str, topic: str, mode: Literal["PULL", "POP"], *, pop_share_queues: int = 0
    ) -> None:
        """Let a group pull or pop a topic, on every master of the topic.

        It holds for members whose queues brokers assign. `pop_share_queues` members pop a queue at the same
        time; 0 are all.
        """
        wanted = RequestMode(topic, group, mode, pop_share_queues)
        code, body = RequestCode.SET_MESSAGE_REQUEST_MODE, msgspec.json.encode(wanted, order="sorted")
        await self._ask_all((await self._masters_of(topic)).values(), code, body=body)

    # Offsets of consumer groups.

    async def consumer_progress(
        self, group: str, topic: str | None = None
    ) -> dict[MessageQueue, QueueProgress]:
        """The progress of a group in its queues, of one topic or of all that it reads."""
        header = GetConsumeStatsRequest(consumer_group=group, topic=topic)
        answers = await self._ask_masters(topic, RequestCode.GET_CONSUME_STATS, header)
        return _merged(decode_offset_table(QueueProgress, answer.body) for answer in answers)

    async def broker_progress(self, broker: str) -> BrokerProgress:
        """The progress of all groups in the queues of the broker at this address."""
        header = GetConsumeStatsInBroker(is_order=False)
        answer = await self._ask(broker, RequestCode.GET_BROKER_CONSUME_STATS, header)
        return decode_broker_progress(answer.body)

    async def consume_time_spans(self, group: str, topic: str) -> dict[MessageQueue, ConsumeTimeSpan]:
        """The store times of the messages that a group has consumed and has before it, by queue."""
        header = QueryConsumeTimeSpanRequest(topic=topic, group=group)
        answers = await self._ask_masters(topic, RequestCode.QUERY_CONSUME_TIME_SPAN, header)
        return _merged(decode_time_spans(answer.body) for answer in answers)

    async def consumer_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The offset that a group has committed for a queue; None if it has none."""
        return await self._calls.committed(group, queue)

    async def commit_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit an offset of a group that has no members; returns when the broker has it."""
        await self._calls.commit(group, queue, offset)

    async def reset_offsets(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> Mapping[MessageQueue, int]:
        """Reset a group to the first message at or after a time, or to the end (-1); returns the new offsets.

        Connected members are told; the offsets of a group without members are set on the brokers. Without
        `force`, a queue that the group has not read that far yet keeps its offset.
        """
        if timestamp_ms != -1:
            time_ms("timestamp_ms", timestamp_ms)
        header = ResetOffsetRequest(topic=topic, group=group, timestamp=timestamp_ms, is_force=force)
        offsets: dict[MessageQueue, int] = {}
        for name, address in (await self._masters_of(topic)).items():
            try:
                answer = await self._ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
                offsets |= decode_queue_table(answer.body, "offsetTable")
            except ResponseError as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
                offsets |= await self._reset_without_members(group, topic, name, timestamp_ms, force)
        return dict(sorted(offsets.items()))

    async def _reset_without_members(
        self, group: str, topic: str, broker_name: str, timestamp_ms: int, force: bool
    ) -> dict[MessageQueue, int]:
        calls = self._calls
        offsets: dict[MessageQueue, int] = {}
        for queue in self._instance.routes.subscribe_queues(topic):
            if queue.broker_name != broker_name:
                continue
            if timestamp_ms < 0:
                target = await calls.max_offset(queue)
            else:
                target = await calls.search_offset(queue, timestamp_ms)
            before = await calls.committed(group, queue)
            if force or before is None or target <= before:
                await calls.commit(group, queue, target)
                offsets[queue] = target
        return offsets

    async def clone_offsets(self, source: str, target: str, topic: str) -> None:
        """Copy the offsets of one group in a topic to another group."""
        header = CloneGroupOffsetRequest(src_group=source, dest_group=target, topic=topic, offline=True)
        await self._ask_masters(topic, RequestCode.CLONE_GROUP_OFFSET, header)

    # Queues.

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be read."""
        await self.topic_route(topic)
        found = self._instance.routes.subscribe_queues(topic)
        if not found:
            raise RouteNotFoundError(f"topic {topic} does not exist, or has no queue that can be read")
        return list(found)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue will get."""
        return await self._calls.max_offset(queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message of a queue."""
        return await self._calls.min_offset(queue)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset that a queue had reached at a time."""
        return await self._calls.search_offset(queue, time_ms("timestamp_ms", timestamp_ms))

    async def read(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 32,
        expression: Expression = ALL,
        wait_ms: int = 0,
        group: str = TOOLS_GROUP,
    ) -> PullReply:
        """Read messages of a queue from an offset; a broker that has none waits `wait_ms` for one."""
        instance = self._instance
        subscription = subscription_of(queue.topic, expression, instance.clock.now_ms())
        raw = await PullRequests(instance, self._calls, group).pull_raw(
            queue,
            subscription,
            offset,
            max_messages,
            kind=PullKind.PULL,
            suspend_ms=wait_ms,
            timeout_s=self.settings.call_timeout_s + wait_ms / 1000,
        )
        return raw.decode(queue, subscription, offset)

    # Messages.

    async def view_message(self, offset_msg_id: str) -> StoredMessage:
        """The message with this offset id (`SendReceipt.offset_msg_id`), from the broker that it names."""
        offset_id = decode_offset_id(offset_msg_id)
        header = ViewMessageRequest(offset=offset_id.commit_log_offset)
        answer = await self._ask(str(offset_id.store_host), RequestCode.VIEW_MESSAGE_BY_ID, header)
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
        time_ms("begin_ms", begin_ms)
        time_ms("end_ms", end_ms)
        found = await self._query(topic, key, max_messages, begin_ms, end_ms, unique=False)
        return [message for message in found if key in message.keys][:max_messages]

    async def message_by_id(self, topic: str, msg_id: str) -> StoredMessage | None:
        """The message of a topic with this id of its producer (`SendReceipt.msg_id`)."""
        found = await self._query(topic, msg_id, 32, 0, FOR_EVER_MS, unique=True)
        return next((message for message in found if message.msg_id == msg_id), None)

    async def message_trace(
        self, msg_id: str, *, trace_topic: str = TRACE_TOPIC, max_messages: int = 64
    ) -> MessageTrace:
        """The trace of the message with this id (`SendReceipt.msg_id`), as its clients recorded it.

        Traces are messages themselves, and expire like these.
        """
        found = await self.query_messages(trace_topic, msg_id, max_messages=max_messages)
        records = [
            (record, message.born_host.ip)
            for message in found
            for record in decode_records(message.body)
            if record.msg_id == msg_id
        ]
        return gather(msg_id, records)

    async def message_tracks(self, message: StoredMessage) -> list[MessageTrack]:
        """What became of a message in each consumer group that reads its topic."""
        queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
        masters = await self._masters_of(message.topic)
        if message.broker_name not in masters:
            raise RouteNotFoundError(f"topic {message.topic} has no master {message.broker_name!r}")

        async def track(group: str) -> MessageTrack:
            offset = await self.consumer_offset(group, queue)
            connection = await self.group_connection(masters[message.broker_name], group)
            return MessageTrack(group, _track_type(message, offset, connection), offset)

        return list((await for_each(await self.groups_of_topic(message.topic), track)).values())

    async def consume_directly(
        self, group: str, client_id: str, message: StoredMessage
    ) -> ConsumeDirectlyResult:
        """Have a member of a group consume a message now, and return how that went; no offset moves."""
        header = ConsumeMessageDirectlyResultRequest(
            consumer_group=group, client_id=client_id, topic=message.topic, msg_id=message.offset_msg_id
        )
        code, broker = RequestCode.CONSUME_MESSAGE_DIRECTLY, str(message.store_host)
        answer = await self._ask(broker, code, header, timeout_s=3 * self.settings.call_timeout_s)
        return decode_answer(ConsumeDirectlyResult, answer.body)

    async def resume_half_check(self, offset_msg_id: str) -> None:
        """Have a broker check a half message again that it gave up (in `TRANS_CHECK_MAX_TIME_TOPIC`)."""
        broker = str(decode_offset_id(offset_msg_id).store_host)
        header = ResumeCheckHalfMessageRequest(msg_id=offset_msg_id)
        await self._ask(broker, RequestCode.RESUME_CHECK_HALF_MESSAGE, header)

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


def _merged(tables: Iterable[dict[MessageQueue, T]]) -> dict[MessageQueue, T]:
    """The entries of all tables, sorted by queue."""
    return dict(sorted((entry for table in tables for entry in table.items()), key=itemgetter(0)))


def _track_type(message: StoredMessage, offset: int | None, connection: GroupConnection | None) -> TrackType:
    if connection is not None and connection.message_model == MessageModel.BROADCASTING:
        return TrackType.CONSUME_BROADCASTING
    if offset is not None and offset > message.queue_offset:
        subscription = connection and connection.subscription_table.get(message.topic)
        tags = subscription.tags_set if subscription else ()
        return TrackType.CONSUMED_BUT_FILTERED if tags and message.tags not in tags else TrackType.CONSUMED
    if connection is None:
        return TrackType.NOT_ONLINE
    pulls = connection.consume_type == ConsumeType.CONSUME_ACTIVELY
    return TrackType.PULL if pulls else TrackType.NOT_CONSUME_YET


def _messages(answer: Command, broker_name: str) -> Sequence[StoredMessage]:
    records = RecordWalk(answer.body, decompress_body=True)
    return [to_stored_message(record, broker_name) for record in records]


def _properties(body: Body) -> dict[str, str]:
    try:
        return parse_properties(str(body, "utf-8"))
    except UnicodeDecodeError:
        raise HeaderError("the settings in the answer are not UTF-8") from None
