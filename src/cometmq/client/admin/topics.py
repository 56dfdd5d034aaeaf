"""Administration of topics.

Rules kept here: a topic that was created can be used when `create_topic` returns: the name servers know it.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from cometmq.client.admin.base import AdminBase
from cometmq.client.admin.results import QueueStatus, decode_offset_table
from cometmq.client.names import check_topic
from cometmq.model.errors import ClientError, ResponseError, RouteNotFoundError
from cometmq.model.names import DEFAULT_TOPIC
from cometmq.model.queue import MessageQueue
from cometmq.model.topic import PERM_READ, PERM_WRITE, TopicConfig
from cometmq.wire.bodies.json_body import decode_answer
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.namesrv import DeleteTopicFromNamesrvRequest
from cometmq.wire.headers.topic import (
    CreateTopicRequest,
    DeleteTopicRequest,
    GetAllTopicConfigRequest,
    GetTopicConfigRequest,
    GetTopicStatsInfoRequest,
    QueryTopicConsumeByWhoRequest,
)

_ROUTE_POLL_S: Final = 0.05


class _TopicList(msgspec.Struct, rename="camel"):
    topic_list: list[str] = []


class _TopicTable(msgspec.Struct, rename="camel"):
    topic_config_table: dict[str, TopicConfig] = {}


class _GroupList(msgspec.Struct, rename="camel"):
    group_list: list[str] = []


class TopicAdmin(AdminBase):
    """Makes, changes, shows and deletes topics."""

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

        `attributes` are changes such as `+message.type=FIFO,+cleanup.policy=DELETE`.
        """
        check_topic(topic)
        if queues < 1:
            raise ClientError(f"a topic needs at least one queue, not {queues}")
        config = TopicConfig(topic, queues, queues, perm, order=order)
        masters = await self.masters(cluster)
        await asyncio.gather(
            *(self.put_topic(address, config, attributes=attributes) for address in masters.values())
        )
        await self.await_topic(config, *masters)

    async def put_topic(self, broker: str, config: TopicConfig, *, attributes: str | None = None) -> None:
        """Have the broker at this address create the topic, or change it; attributes change as is said."""
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
        """Wait until the name server shows a topic on these brokers as it was made or changed.

        A broker that is itself not allowed as much as the topic keeps its topics from it; then their numbers
        of queues are enough.
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
                    if {each.broker_name for each in shown if each.perm == config.perm}.issuperset(
                        broker_names
                    ):
                        return
                    await asyncio.sleep(_ROUTE_POLL_S)
        except TimeoutError:
            if not numbers.issuperset(broker_names):
                raise RouteNotFoundError(
                    f"topic {topic} was changed, but the name server does not show it yet; look again later"
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
        return sorted(decode_answer(_TopicList, answer.body).topic_list)

    async def topic_configs(self, broker: str) -> dict[str, TopicConfig]:
        """How all topics are set up on the broker at this address."""
        answer = await self._ask(broker, RequestCode.GET_ALL_TOPIC_CONFIG, GetAllTopicConfigRequest())
        return decode_answer(_TopicTable, answer.body).topic_config_table

    async def topic_config(self, broker: str, topic: str) -> TopicConfig | None:
        """How a topic is set up on the broker at this address; None if it is not there."""
        try:
            answer = await self._ask(broker, RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequest(topic=topic))
        except ResponseError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        return decode_answer(TopicConfig, answer.body)

    async def topic_status(self, topic: str) -> dict[MessageQueue, QueueStatus]:
        """What each queue of a topic holds."""
        status: dict[MessageQueue, QueueStatus] = {}
        for address in (await self._masters_of(topic)).values():
            header = GetTopicStatsInfoRequest(topic=topic)
            answer = await self._ask(address, RequestCode.GET_TOPIC_STATS_INFO, header)
            status |= decode_offset_table(QueueStatus, answer.body)
        return dict(sorted(status.items()))

    async def groups_of_topic(self, topic: str) -> list[str]:
        """The groups that read a topic, or have read it."""
        found: set[str] = set()
        for address in (await self._masters_of(topic)).values():
            header = QueryTopicConsumeByWhoRequest(topic=topic)
            answer = await self._ask(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
            found.update(decode_answer(_GroupList, answer.body).group_list)
        return sorted(found)
