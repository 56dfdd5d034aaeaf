"""Topic administration: create, change, list and delete topics.

Rules kept here: who makes or changes a topic hears of success when the change is on the disk and the name
servers that can be reached know of it.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import Final

import msgspec

from cometmq.broker.context import BrokerContext
from cometmq.broker.handlers.refusals import invalid, raise_if
from cometmq.broker.ports import FAST_PORT_DISTANCE
from cometmq.broker.time_slices import encode_in_thread
from cometmq.broker.topics.attributes import MESSAGE_TYPE, RESERVE_TIME, changed, parse_changes
from cometmq.broker.topics.names import refuse_topic
from cometmq.broker.topics.retention import reserved_hours
from cometmq.model.names import RETRY_PREFIX
from cometmq.model.topic import MAX_QUEUES, DataVersion, TopicConfig
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, handles
from cometmq.remoting.server import RemotingServer
from cometmq.wire.bodies.json_body import decode_json_body
from cometmq.wire.codes import V5_3_1, V5_3_3, RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.topic import (
    CreateTopicListRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    GetAllTopicConfigRequest,
    GetAllTopicConfigResponse,
    GetTopicConfigRequest,
)
from cometmq.wire.json.pretty import dumps_table

log = logging.getLogger("cometmq.broker")

ANNOUNCE_S: Final = 3.0
"""How long a change of a topic waits for the name servers."""
MAX_TOPICS_AT_ONCE: Final = 2_000
"""A list with more topics is refused."""
_FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")


class _TopicList(msgspec.Struct, rename="camel"):
    topic_config_list: list[TopicConfig] = []


class _TopicTable(msgspec.Struct, rename="camel"):
    """The table as a slave, and Apache's tools, ask for it."""

    data_version: DataVersion
    topic_config_table: dict[str, TopicConfig]
    mapping_data_version: DataVersion
    topic_queue_mapping_detail_map: dict[str, str] = {}
    topic_queue_mapping_info_map: dict[str, str] = {}


class TopicAdminHandlers:
    """Topics of this broker."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    @handles(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequest)
    async def update(self, header: CreateTopicRequest, connection: Connection) -> Answer:
        """Make a topic or change it."""
        log.info("%s updates topic %s", connection.remote_address, header.topic)
        topic = TopicConfig(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            header.topic_filter_type,
            header.topic_sys_flag or 0,
            header.order,
        )
        with self._measured(header.topic):
            return await self._put([self._checked(topic, parse_changes(header.attributes))])

    @handles(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, CreateTopicListRequest)
    async def update_list(self, request: Command, connection: Connection) -> Answer:
        """Create or change several topics: all of them, or none."""
        wanted = decode_json_body(_TopicList, request.body).topic_config_list
        if len(wanted) > MAX_TOPICS_AT_ONCE:
            raise invalid(f"{len(wanted)} topics are too many; send at most {MAX_TOPICS_AT_ONCE} at once")
        log.info("%s updates %d topics", connection.remote_address, len(wanted))
        with self._measured(*(topic.topic_name for topic in wanted)):
            return await self._put([self._checked(topic, topic.attributes or {}) for topic in wanted])

    def _measured(self, *topics: str) -> AbstractContextManager[None]:
        is_system = any(map(self._context.topics.is_system_topic, topics))
        return self._context.traffic.topic_creations.measured(is_system=is_system)

    def _checked(self, topic: TopicConfig, changes: dict[str, str]) -> TopicConfig:
        """The topic as it will be; raises if it cannot be like that."""
        self._refuse_name(topic.topic_name)
        numbers = (topic.read_queue_nums, topic.write_queue_nums)
        if min(numbers) < 0 or max(numbers) > MAX_QUEUES:
            raise invalid(
                f"readQueueNums {topic.read_queue_nums} and writeQueueNums {topic.write_queue_nums} "
                f"have to be from 0 to {MAX_QUEUES}"
            )
        if not 0 <= topic.perm <= 15 or topic.topic_filter_type not in _FILTER_TYPES:
            raise invalid(f"perm {topic.perm} or topicFilterType {topic.topic_filter_type} is not legal")
        if not -(2**31) <= topic.topic_sys_flag < 2**31:
            raise invalid(f"topicSysFlag {topic.topic_sys_flag} does not fit in 32 bits")
        if (
            changes.get(f"+{MESSAGE_TYPE}") == "MIXED"
            and not self._context.settings.broker.enable_mixed_message_type
        ):
            raise invalid("MIXED message type is not supported.")
        known = self._context.topics.get(topic.topic_name)
        attributes = changed(None if known is None else known.attributes or {}, changes)
        hours, most = reserved_hours(attributes), self._context.settings.store.file_reserved_time
        if hours is not None and hours > most and f"+{RESERVE_TIME}" in changes:
            raise invalid(
                f"{RESERVE_TIME} of {hours} hours is more than fileReservedTime of {most} hours, and all "
                "topics share the files of the log; raise fileReservedTime, or choose fewer hours"
            )
        return msgspec.structs.replace(topic, attributes=attributes)

    def _refuse_name(self, topic: str) -> None:
        raise_if(refuse_topic(topic))
        self._refuse_system_topic(topic)

    def _refuse_system_topic(self, topic: str) -> None:
        context = self._context
        if context.settings.broker.validate_system_topic_when_update_topic and context.topics.is_system_topic(
            topic
        ):
            raise invalid(f"The topic[{topic}] is conflict with system topic.")

    async def _put(self, topics: list[TopicConfig]) -> Answer:
        context = self._context
        if not context.topics.has_room_for(*(topic.topic_name for topic in topics)):
            raise invalid(
                f"this broker has {len(context.topics.table)} topics, and {len(topics)} more are too many; "
                "delete topics that nobody needs, or raise maxTopics"
            )
        for topic in topics:
            self._warn_of_hidden(topic)
        if context.topics.update_all(topics):
            await context.topic_file.saved()
            await context.registration.settled(ANNOUNCE_S)
        return Answer()

    def _warn_of_hidden(self, topic: TopicConfig) -> None:
        """Log what consumers are not given any more, if a topic gets fewer queues that can be read."""
        context, name = self._context, topic.topic_name
        before = context.topics.get(name)
        gone = range(topic.read_queue_nums, 0 if before is None else before.read_queue_nums)
        queues = context.store.queues.of_topic(name) if gone else []
        messages = sum(queue.max_offset - queue.min_offset for queue in queues if queue.queue_id in gone)
        if before is not None and messages:
            log.warning(
                "topic %s has %d queues to read in place of %d: the others hold %d messages, which no "
                "consumer is given any more; they are there again when it has %d queues to read",
                *(name, topic.read_queue_nums, before.read_queue_nums, messages, before.read_queue_nums),
            )

    @handles(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest)
    async def delete(self, header: DeleteTopicRequest, connection: Connection) -> Answer:
        """Forget a topic, its queues and how far groups are in it, and its retry topics of pop consumers."""
        context, topic = self._context, header.topic
        log.info("%s deletes topic %s", connection.remote_address, topic)
        raise_if(context.topics.refuse(topic))
        self._refuse_system_topic(topic)
        gone = [topic]
        if context.settings.broker.clear_retry_topic_when_delete_topic:
            for group in context.offsets.groups_of_topic(topic):
                names = (f"{RETRY_PREFIX}{group}+{topic}", f"{RETRY_PREFIX}{group}_{topic}")
                gone += [name for name in names if context.topics.get(name) is not None]
        for each in gone:
            context.topics.delete(each)
            context.offsets.remove_topic(each)
        await context.topic_file.saved()
        await context.store.delete_topics(gone)
        for each in gone:
            context.statistics.forget_topic(each)
        return Answer()

    @handles(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequest)
    def get(self, header: GetTopicConfigRequest) -> Answer:
        """How one topic is set up."""
        topic = self._context.topics.get(header.topic)
        if topic is None:
            remark = f"No topic in this broker. topic: {header.topic}"
            return Answer(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        return Answer(body=dumps_table(_complete(topic), pretty=False))

    @handles(RequestCode.GET_ALL_TOPIC_CONFIG, GetAllTopicConfigRequest)
    async def get_all(
        self, header: GetAllTopicConfigRequest, request: Command, connection: Connection
    ) -> Answer:
        """All topics, or a page of them."""
        topics = self._context.topics
        names = list(topics.table)
        if header.topic_seq is not None:
            start, count = self._page(header)
            names = sorted(names)[start : start + count]
        # Slaves of Apache 5.3.2 and 5.3.3 store topics as an administrator makes them: an attribute without
        # this sign is an error, after which they have no topic at all. Slaves ask on the fast port.
        is_old_slave = (
            header.topic_seq is None
            and request.language == "JAVA"
            and V5_3_1 < request.version <= V5_3_3
            and isinstance(connection.endpoint, RemotingServer)
            and connection.endpoint.port == self._context.host.port - FAST_PORT_DISTANCE
        )
        complete = _with_signs if is_old_slave else _complete
        table = _TopicTable(
            topics.data_version,
            {name: complete(topics.table[name]) for name in names},
            DataVersion(0, self._context.started_ms, 0),
        )
        paged = GetAllTopicConfigResponse(total_topic_num=len(topics.table))
        body = await encode_in_thread(lambda: dumps_table(table, pretty=False), len(names))
        return Answer(header=None if header.topic_seq is None else paged, body=body)

    def _page(self, header: GetAllTopicConfigRequest) -> tuple[int, int]:
        """Where a page begins and how long it is; it begins anew if the topics changed meanwhile."""
        most = 2000 if header.max_topic_num is None else min(header.max_topic_num, 2000)
        version = self._context.topics.data_version
        asked = decode_json_body(DataVersion, header.data_version.encode()) if header.data_version else None
        start = header.topic_seq if asked == version else 0
        return max(start or 0, 0), max(most, 0)


def _with_signs(topic: TopicConfig) -> TopicConfig:
    attributes = {f"+{name}": value for name, value in (topic.attributes or {}).items()}
    return msgspec.structs.replace(topic, attributes=attributes)


def _complete(topic: TopicConfig) -> TopicConfig:
    return topic if topic.attributes is not None else msgspec.structs.replace(topic, attributes={})
