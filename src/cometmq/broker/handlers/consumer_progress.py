"""Consumer progress and offset resets, as administrators see them."""

from __future__ import annotations

import functools
from typing import Any, Final

from cometmq.broker.context import BrokerContext
from cometmq.broker.groups.bodies import encode_offset_list, encode_offsets, queue_key
from cometmq.broker.groups.offsets import TOO_MANY_OFFSETS
from cometmq.broker.handlers.offset import has_queue
from cometmq.broker.handlers.refusals import raise_if
from cometmq.broker.query.messages import Queries
from cometmq.broker.time_slices import encode_in_thread, sliced
from cometmq.model.errors import RemotingError
from cometmq.model.queue import lag_of
from cometmq.remoting.handler import Answer, handles
from cometmq.wire.bodies.json_body import encode_topic_list
from cometmq.wire.codes import V3_0_7_SNAPSHOT, RequestCode, ResponseCode, version_name
from cometmq.wire.frame.command import Command
from cometmq.wire.header.schema import encode_fields
from cometmq.wire.headers.group import (
    GetConsumeStatsInBroker,
    GetConsumeStatsRequest,
    QueryConsumeTimeSpanRequest,
)
from cometmq.wire.headers.offset import CloneGroupOffsetRequest, QueryCorrectionOffset, ResetOffsetRequest
from cometmq.wire.headers.topic import GetTopicStatsInfoRequest
from cometmq.wire.json import fastjson
from cometmq.wire.json.pretty import dumps_table

MAX_QUEUES_AT_ONCE: Final = 100_000
"""An answer tells of no more queues; it would not fit into a frame."""
NO_CORRECTION: Final = 2**63 - 1
"""The correction of a queue in which the group is not ahead of the others."""


class ConsumerProgressHandlers:
    """Offsets of groups and queues, as administrators ask for them and set them."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._queries = Queries(context.store)
        self._bounds = context.store.queues.bounds

    def _queue_key(self, topic: str, queue_id: int) -> Any:
        return queue_key(self._context.settings.broker.broker_name, topic, queue_id)

    # How far

    @handles(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequest)
    async def topic_stats(self, header: GetTopicStatsInfoRequest) -> Answer:
        """The offsets of all queues of a topic, and when its last messages came."""
        topic = self._context.topics.get(header.topic)
        if topic is None:
            return _no_topic(header.topic)
        table = {}
        async for queue_id in sliced(range(max(topic.read_queue_nums, topic.write_queue_nums))):
            first, end = self._bounds(header.topic, queue_id)
            last_ms = await self._queries.store_time(header.topic, queue_id, end - 1) if end else 0
            table[self._queue_key(header.topic, queue_id)] = {
                "lastUpdateTimestamp": max(last_ms, 0),
                "maxOffset": end,
                "minOffset": first,
            }
        tps = self._context.statistics.put_tps(header.topic)
        members = {"offsetTable": table, "topicPutTps": tps}
        return Answer(body=await encode_in_thread(lambda: fastjson.dumps(members), len(table)))

    @handles(RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequest)
    async def consume_stats(self, header: GetConsumeStatsRequest) -> Answer:
        """How far a group is in its topics, or in those that are named."""
        group = header.consumer_group
        names = (name for name in (header.topic_list or "").split(";") if name.strip())
        topics = list(dict.fromkeys(names))
        if not topics:
            known = self._context.offsets.topics_of_group(group)
            topics = sorted([header.topic] if header.topic and header.topic.strip() else known)
            topics = [topic for topic in topics if self._may_read(group, topic)]
        table: dict[Any, dict[str, int]] = {}
        tps = 0.0
        async for topic in sliced(topics):
            config = self._context.topics.get(topic)
            if config is not None:
                if len(table) + config.read_queue_nums > MAX_QUEUES_AT_ONCE:
                    remark = f"more than {MAX_QUEUES_AT_ONCE} queues are asked for; ask for fewer topics"
                    return Answer(ResponseCode.INVALID_PARAMETER, remark=remark)
                table.update(await self._progress(group, topic, config.read_queue_nums))
                tps += self._context.statistics.get_tps(group, topic)
        members = {"consumeTps": tps, "offsetTable": table}
        return Answer(body=await encode_in_thread(lambda: fastjson.dumps(members), len(table)))

    async def _progress(self, group: str, topic: str, queues: int) -> dict[Any, dict[str, int]]:
        offsets = self._context.offsets
        table = {}
        async for queue_id in sliced(range(queues)):
            found = offsets.query(group, topic, queue_id)
            consumed = max(found, 0)
            pulled = max(offsets.query_pulled(group, topic, queue_id), consumed)
            last_ms = await self._queries.store_time(topic, queue_id, consumed - 1) if consumed else 0
            table[self._queue_key(topic, queue_id)] = {
                "brokerOffset": self._bounds(topic, queue_id)[1],
                "consumerOffset": consumed,
                "lastTimestamp": max(last_ms, 0),
                "pullOffset": pulled,
                **({"hasOffset": False} if found < 0 else {}),  # ours; 0 is RocketMQ's word for it
            }
        return table

    def _may_read(self, group: str, topic: str) -> bool:
        """Whether a group reads a topic, as far as is known: one that is not online may."""
        online = self._context.clients.consumers.get(group)
        return online is None or not online.subscriptions or topic in online.subscriptions

    @handles(RequestCode.GET_BROKER_CONSUME_STATS, GetConsumeStatsInBroker)
    async def all_consume_stats(self, header: GetConsumeStatsInBroker) -> Answer:
        """How far all groups are, and how many messages they have before them together."""
        context = self._context
        listed: list[dict[str, list[dict[str, object]]]] = []
        lag = in_flight = count = 0
        topics_of = context.offsets.topics_by_group()
        async for group in sliced(list(context.groups.table)):
            stats: list[dict[str, object]] = []
            async for topic in sliced(sorted(topics_of.get(group, ()))):
                config = context.topics.get(topic)
                if config is None or (header.is_order and not config.order):
                    continue
                if not self._may_read(group, topic):
                    continue
                table = await self._progress(group, topic, config.write_queue_nums)
                count += len(table)
                if count > MAX_QUEUES_AT_ONCE:
                    remark = f"the groups have more than {MAX_QUEUES_AT_ONCE} queues; ask for each of them"
                    return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
                lag += sum(lag_of(each["brokerOffset"], each["consumerOffset"]) for each in table.values())
                in_flight += sum(each["pullOffset"] - each["consumerOffset"] for each in table.values())
                tps = context.statistics.get_tps(group, topic)
                stats.append({"consumeTps": tps, "offsetTable": table})
            listed.append({group: stats})
        members = {
            "brokerAddr": context.address,
            "consumeStatsList": listed,
            "totalDiff": lag,
            "totalInflightDiff": in_flight,
        }
        count += len(listed)
        return Answer(body=await encode_in_thread(lambda: fastjson.dumps(members), count))

    @handles(RequestCode.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpanRequest)
    async def consume_time_span(self, header: QueryConsumeTimeSpanRequest) -> Answer:
        """The times between which a group is in each queue of a topic."""
        topic = self._context.topics.get(header.topic)
        if topic is None:
            return _no_topic(header.topic)
        queue_ids = range(topic.write_queue_nums)
        spans = [await self._time_span(header, queue_id) async for queue_id in sliced(queue_ids)]
        members = {"consumeTimeSpanSet": spans}
        return Answer(body=await encode_in_thread(lambda: fastjson.dumps(members), len(spans)))

    async def _time_span(self, header: QueryConsumeTimeSpanRequest, queue_id: int) -> dict[str, object]:
        topic, store_time = header.topic, self._queries.store_time
        first, end = self._bounds(topic, queue_id)
        consumed = self._context.offsets.query(header.group, topic, queue_id)
        first_ms = await store_time(topic, queue_id, first)
        consumed_ms = await store_time(topic, queue_id, consumed - 1) if consumed > 0 else first_ms
        delay_ms = 0
        if consumed < end:
            next_ms = await store_time(topic, queue_id, max(consumed, first))
            delay_ms = self._context.clock.now_ms() - next_ms
        return {
            "consumeTimeStamp": consumed_ms,
            "delayTime": delay_ms,
            "maxTimeStamp": await store_time(topic, queue_id, end - 1),
            "messageQueue": dict(self._queue_key(topic, queue_id)),
            "minTimeStamp": first_ms,
        }

    @handles(RequestCode.QUERY_CORRECTION_OFFSET, QueryCorrectionOffset)
    def correction_offset(self, header: QueryCorrectionOffset) -> Answer:
        """By queue, how far the last of the groups is, where that lags the one that compares itself."""
        offsets = self._context.offsets
        left_out = (header.filter_groups or "").split(",")
        least = {
            queue_id: offset
            for queue_id, offset in offsets.min_offsets(header.topic, left_out).items()
            if offset >= self._bounds(header.topic, queue_id)[0]
        }
        for queue_id, offset in (offsets.queues_of(header.compare_group, header.topic) or {}).items():
            if least.get(queue_id, NO_CORRECTION) > offset:
                least[queue_id] = NO_CORRECTION
        return Answer(body=fastjson.dumps({"correctionOffsets": least}))

    @handles(RequestCode.GET_ALL_CONSUMER_OFFSET)
    async def all_consumer_offsets(self) -> Answer:
        """The offsets of all groups, as a replica takes them over."""
        table = self._context.offsets.snapshot().completed()
        encode = functools.partial(dumps_table, table, pretty=False)
        return Answer(body=await encode_in_thread(encode, len(self._context.offsets)))

    @handles(RequestCode.GET_ALL_DELAY_OFFSET)
    def all_delay_offsets(self) -> Answer:
        """How far the delivery of delayed messages is, as a replica takes it over."""
        return Answer(body=dumps_table(self._context.delays.snapshot().completed(), pretty=False))

    @handles(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    def system_topics(self) -> Answer:
        """The topics that the broker has for itself."""
        return Answer(body=encode_topic_list(sorted(self._context.topics.system_topics)))

    # Setting elsewhere

    @handles(RequestCode.CLONE_GROUP_OFFSET, CloneGroupOffsetRequest)
    async def clone_offsets(self, header: CloneGroupOffsetRequest) -> Answer:
        """Let one group go on where another one is."""
        raise_if(self._context.groups.refuse(header.dest_group))
        offsets = self._context.offsets
        topics = [header.topic] if header.topic else sorted(offsets.topics_of_group(header.src_group))
        async for topic in sliced(topics):
            if self._context.topics.get(topic) is not None and (
                header.offline or self._may_read(header.src_group, topic)
            ):
                if offsets.is_full:
                    return Answer(ResponseCode.SYSTEM_ERROR, remark=TOO_MANY_OFFSETS)
                offsets.clone(header.src_group, header.dest_group, topic)
        return Answer()

    @handles(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequest)
    async def reset_offset(self, header: ResetOffsetRequest, request: Command) -> Answer:
        """Set a group to a time or an offset: on the broker, or by telling its clients."""
        if self._context.settings.broker.use_server_side_reset_offset:
            return await self._reset_on_broker(header)
        return await self._reset_on_clients(header, is_cpp=request.language == "CPP")

    async def _reset_on_broker(self, header: ResetOffsetRequest) -> Answer:
        context = self._context
        topic_name, group = header.topic, header.group
        if context.settings.is_slave:
            return Answer(ResponseCode.SYSTEM_ERROR, remark="Can not reset offset in slave broker")
        topic = context.topics.get(topic_name)
        if topic is None:
            return Answer(ResponseCode.TOPIC_NOT_EXIST, remark=f"Topic {topic_name} does not exist")
        if context.groups.get(group) is None:
            remark = f"Group {group} does not exist"
            return Answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark)
        if header.queue_id >= 0 and not has_queue(context, topic_name, header.queue_id):
            remark = f"topic {topic_name} has no queue {header.queue_id} on this broker"
            return Answer(ResponseCode.INVALID_PARAMETER, remark=remark)
        if header.queue_id >= 0 and header.offset not in (None, -1):
            offset = int(header.offset or 0)
            first, end = self._bounds(topic_name, header.queue_id)
            if offset < first or offset > end + 1:
                remark = f"Target offset {offset} not in consume queue range [{first}-{end}]"
                return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
            targets = {header.queue_id: offset}
        else:
            queue_ids = [header.queue_id] if header.queue_id >= 0 else range(topic.read_queue_nums)
            targets = {each: await self._target(header, each) async for each in sliced(queue_ids)}
        if not targets:
            return Answer(ResponseCode.SYSTEM_ERROR, remark="No queues to reset.")
        if context.offsets.is_full and any(
            context.offsets.query(group, topic_name, each) < 0 for each in targets
        ):
            return Answer(ResponseCode.SYSTEM_ERROR, remark=TOO_MANY_OFFSETS)
        for queue_id, offset in targets.items():
            context.offsets.assign_reset(topic_name, group, queue_id, offset)
        encode = functools.partial(encode_offsets, context.settings.broker.broker_name, topic_name, targets)
        return Answer(body=await encode_in_thread(encode, len(targets)))

    async def _target(self, header: ResetOffsetRequest, queue_id: int) -> int:
        if header.timestamp < 0:
            return self._bounds(header.topic, queue_id)[1]
        return await self._queries.offset_by_time(header.topic, queue_id, header.timestamp)

    async def _reset_on_clients(self, header: ResetOffsetRequest, *, is_cpp: bool) -> Answer:
        context, name = self._context, self._context.settings.broker.broker_name
        topic = context.topics.get(header.topic)
        if topic is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}"
            return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        targets = {}
        async for queue_id in sliced(range(topic.write_queue_nums)):
            consumed = context.offsets.query(header.group, header.topic, queue_id)
            if consumed == -1:
                remark = f"THe consumer group <{header.group}> not exist"
                return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
            target = await self._target(header, queue_id)
            targets[queue_id] = target if header.is_force else min(target, consumed)
        group = context.clients.consumers.get(header.group)
        if group is None:
            remark = (
                f"Consumer not online, so can not reset offset, Group: {header.group} "
                f"Topic: {header.topic} Timestamp: {header.timestamp}"
            )
            return Answer(ResponseCode.CONSUMER_NOT_ONLINE, remark=remark)
        fields = encode_fields(
            ResetOffsetRequest(
                topic=header.topic, group=header.group, timestamp=header.timestamp, is_force=header.is_force
            )
        )
        encode_targets = encode_offset_list if is_cpp else encode_offsets
        encode = functools.partial(encode_targets, name, header.topic, targets)
        body = await encode_in_thread(encode, len(targets))
        for client in list(group.members.values()):
            if client.version < V3_0_7_SNAPSHOT:
                remark = f"the client does not support this feature. version={version_name(client.version)}"
                return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
            try:
                client.connection.oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body)
            except RemotingError:  # it is gone, and asks for its offset when it comes back
                continue
        return Answer(body=encode_offsets(name, header.topic, targets))


def _no_topic(topic: str) -> Answer:
    return Answer(ResponseCode.TOPIC_NOT_EXIST, remark=f"topic[{topic}] not exist")
