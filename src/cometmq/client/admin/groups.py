"""Administration of consumer groups: their settings, their members, and how far they are."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from cometmq.client.admin.base import AdminBase
from cometmq.client.admin.results import (
    BrokerProgress,
    GroupConnection,
    MemberInfo,
    QueueProgress,
    decode_broker_progress,
    decode_member_info,
    decode_offset_table,
)
from cometmq.client.consumer.broker_calls import QueueCalls, decode_queue_table
from cometmq.client.names import check_group
from cometmq.model.errors import ResponseError
from cometmq.model.queue import MessageQueue
from cometmq.model.subscription import SubscriptionGroupConfig
from cometmq.wire.bodies.json_body import decode_answer
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.group import (
    DeleteSubscriptionGroupRequest,
    GetAllSubscriptionGroupRequest,
    GetConsumeStatsInBroker,
    GetConsumeStatsRequest,
)
from cometmq.wire.headers.offset import CloneGroupOffsetRequest, ResetOffsetRequest
from cometmq.wire.headers.session import GetConsumerConnectionListRequest, GetConsumerRunningInfoRequest


class _GroupTable(msgspec.Struct, rename="camel"):
    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}


class GroupAdmin(AdminBase):
    """Makes, changes, shows and deletes consumer groups."""

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

    async def groups(self, broker: str) -> dict[str, SubscriptionGroupConfig]:
        """How all groups are set up on the broker at this address."""
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        answer = await self._ask(broker, code, GetAllSubscriptionGroupRequest())
        return decode_answer(_GroupTable, answer.body).subscription_group_table

    # Members.

    async def group_connection(self, broker: str, group: str) -> GroupConnection | None:
        """The members of a group that are connected to the broker at this address; None without any."""
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
        """What a member of a group reads, in its own words, asked through the broker at this address."""
        header = GetConsumerRunningInfoRequest(consumer_group=group, client_id=client_id)
        answer = await self._ask(broker, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        return decode_member_info(answer.body)

    # Offsets.

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

    async def broker_progress(self, broker: str) -> BrokerProgress:
        """How far all groups are in the queues of the broker at this address."""
        header = GetConsumeStatsInBroker(is_order=False)
        answer = await self._ask(broker, RequestCode.GET_BROKER_CONSUME_STATS, header)
        return decode_broker_progress(answer.body)

    async def consumer_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The offset that a group has committed for a queue; None if it has none."""
        return await QueueCalls(self._instance).committed(group, queue)

    async def commit_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit an offset of a group that has no members; returns when the broker has it."""
        await QueueCalls(self._instance).commit(group, queue, offset)

    async def reset_offsets(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> Mapping[MessageQueue, int]:
        """Have a group go on at the first message of a time, or at the end (-1); the answer is where.

        Members that are connected are told; the offsets of a group without any are set on the brokers.
        Without `force`, a queue that the group has not read that far yet keeps its offset.
        """
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
        calls, routes = QueueCalls(self._instance), self._instance.routes
        offsets: dict[MessageQueue, int] = {}
        for queue in routes.subscribe_queues(topic):
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
        """Let one group go on in a topic where another one is."""
        header = CloneGroupOffsetRequest(src_group=source, dest_group=target, topic=topic, offline=True)
        for address in (await self._masters_of(topic)).values():
            await self._ask(address, RequestCode.CLONE_GROUP_OFFSET, header)
