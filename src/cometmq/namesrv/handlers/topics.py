"""Topic lists and topic administration."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from cometmq.model.route import QueueData
from cometmq.model.topic import TOPIC_UNIT, TOPIC_UNIT_SUB
from cometmq.namesrv.handlers.registration import MAX_TOPICS
from cometmq.namesrv.state import NamesrvState
from cometmq.remoting.handler import Answer, handles
from cometmq.wire.bodies.json_body import decode_json_body, encode_topic_list
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.namesrv import (
    AddWritePermOfBrokerRequest,
    AddWritePermOfBrokerResponse,
    DeleteTopicFromNamesrvRequest,
    GetTopicsByClusterRequest,
    RegisterTopicRequest,
    WipeWritePermOfBrokerRequest,
    WipeWritePermOfBrokerResponse,
)


class _TopicQueues(msgspec.Struct, rename="camel"):
    queue_datas: list[QueueData] | None = None


class TopicHandlers:
    """Topic lists, deletion, single registration, write permission."""

    def __init__(self, state: NamesrvState) -> None:
        self._state = state

    @handles(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    def all_topics(self) -> Answer:
        return self._list(self._state.config.enable_all_topic_list, lambda: list(self._state.tables.topics))

    @handles(RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequest)
    def topics_of_cluster(self, header: GetTopicsByClusterRequest) -> Answer:
        return self._list(
            self._state.config.enable_topic_list, lambda: self._state.tables.topics_of_cluster(header.cluster)
        )

    @handles(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    def system_topics(self) -> Answer:
        """Every cluster and every broker has a topic of its name; the address is one of a broker's."""
        tables = self._state.tables
        addresses = (
            address for broker in tables.brokers.values() for address in broker.broker_addrs.values()
        )
        names = [*tables.clusters, *tables.brokers]
        return Answer(body=encode_topic_list(names, next(addresses, None)))

    @handles(RequestCode.GET_UNIT_TOPIC_LIST)
    def unit_topics(self) -> Answer:
        return self._with_flag(TOPIC_UNIT)

    @handles(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST)
    def unit_sub_topics(self) -> Answer:
        """Topics with a subscription in a unit."""
        return self._with_flag(TOPIC_UNIT_SUB)

    @handles(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)
    def unit_sub_ununit_topics(self) -> Answer:
        """Topics with a subscription in a unit that are of no unit themselves."""
        return self._with_flag(TOPIC_UNIT_SUB, TOPIC_UNIT)

    def _with_flag(self, wanted: int, unwanted: int = 0) -> Answer:
        return self._list(
            self._state.config.enable_topic_list,
            lambda: self._state.tables.topics_with_flag(wanted, unwanted),
        )

    @staticmethod
    def _list(enabled: bool, topics: Callable[[], list[str]]) -> Answer:
        if not enabled:
            return Answer(ResponseCode.SYSTEM_ERROR, remark="disable")
        return Answer(body=encode_topic_list(topics()))

    @handles(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicFromNamesrvRequest)
    def delete_topic(self, header: DeleteTopicFromNamesrvRequest) -> Answer:
        """Forget a topic's route; its broker's next changed registration can bring it back."""
        self._state.tables.delete_topic(header.topic, header.cluster_name or None)
        return Answer()

    @handles(RequestCode.REGISTER_TOPIC_IN_NAMESRV, RegisterTopicRequest)
    def register_topic(self, header: RegisterTopicRequest, request: Command) -> Answer:
        """A broker that announces its topics one by one."""
        if request.body:
            said = decode_json_body(_TopicQueues, request.body)
            topics = self._state.tables.topics
            if header.topic not in topics and len(topics) >= MAX_TOPICS:
                remark = f"the name server has {len(topics)} topics; {MAX_TOPICS} are possible"
                return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
            self._state.tables.register_topic(header.topic, said.queue_datas or [])
        return Answer()

    @handles(RequestCode.WIPE_WRITE_PERM_OF_BROKER, WipeWritePermOfBrokerRequest)
    def wipe_write_perm(self, header: WipeWritePermOfBrokerRequest) -> Answer:
        """Let producers avoid a broker, for example before it is stopped."""
        touched = self._state.tables.wipe_write_perm(header.broker_name)
        return Answer(header=WipeWritePermOfBrokerResponse(wipe_topic_count=touched))

    @handles(RequestCode.ADD_WRITE_PERM_OF_BROKER, AddWritePermOfBrokerRequest)
    def add_write_perm(self, header: AddWritePermOfBrokerRequest) -> Answer:
        """Let producers use a broker again."""
        touched = self._state.tables.add_write_perm(header.broker_name)
        return Answer(header=AddWritePermOfBrokerResponse(add_topic_count=touched))
