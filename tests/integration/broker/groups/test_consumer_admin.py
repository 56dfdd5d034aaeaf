"""What administrators ask about clients and groups, and what they ask of clients through the broker."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cometmq.remoting.handler import Answer
from cometmq.wire.bodies.heartbeat import HeartbeatData, ProducerData, encode_heartbeat
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.group import (
    GetConsumeStatsInBroker,
    GetConsumeStatsRequest,
    QueryConsumeTimeSpanRequest,
    QuerySubscriptionByConsumerRequest,
    QueryTopicsByConsumerRequest,
)
from cometmq.wire.headers.session import (
    ConsumeMessageDirectlyResultRequest,
    GetConsumerConnectionListRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    GetProducerConnectionListRequest,
    HeartbeatRequest,
)
from cometmq.wire.headers.topic import GetTopicStatsInfoRequest, QueryTopicConsumeByWhoRequest
from cometmq.wire.json import fastjson
from cometmq.wire.record.codec import decode_record
from tests.integration.client.consumer_kit import GROUP, TOPIC, running_broker, tags

RUNNING_INFO = b'{"mqTable":{{"brokerName":"broker-a","queueId":0,"topic":"Orders"}:{"droped":false}}}'


def _status(offset: int, _: Command) -> Answer:
    queue = b'{"brokerName":"broker-a","queueId":0,"topic":"Orders"}'
    return Answer(body=b'{"messageQueueTable":{%b:%d}}' % (queue, offset))


def by_queue(table: dict[Any, Any]) -> dict[int, Any]:
    return {dict(key)["queueId"]: value for key, value in table.items()}


async def test_the_members_of_a_group_are_listed_with_its_subscriptions(tmp_path: Path) -> None:
    """B3."""
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor("consumer")
        await consumer.heartbeat(tags(TOPIC, "paid", version=9))
        answer = await consumer.ask(
            RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequest(consumer_group=GROUP)
        )
        (member,) = visit.context.clients.consumers[GROUP].members
        assert json.loads(answer.body) == {
            "connectionSet": [
                {
                    "clientAddr": member.remote_address,
                    "clientId": "consumer",
                    "language": "PYTHON",
                    "version": 479,
                }
            ],
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "subscriptionTable": {
                TOPIC: {
                    "classFilterMode": False,
                    "codeSet": [3433164],
                    "expressionType": "TAG",
                    "subString": "paid",
                    "subVersion": 9,
                    "tagsSet": ["paid"],
                    "topic": TOPIC,
                }
            },
        }
        offline = await consumer.ask(
            RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequest(consumer_group="none")
        )
        assert (offline.code, offline.remark) == (206, "the consumer group[none] not online")


async def test_producers_are_listed(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        producer = visit.visitor("producer")
        data = HeartbeatData("producer", (ProducerData("shop"),))
        await producer.ask(RequestCode.HEART_BEAT, HeartbeatRequest(), body=encode_heartbeat(data))
        one = await producer.ask(
            RequestCode.GET_PRODUCER_CONNECTION_LIST, GetProducerConnectionListRequest(producer_group="shop")
        )
        assert [each["clientId"] for each in json.loads(one.body)["connectionSet"]] == ["producer"]
        everybody = await producer.ask(RequestCode.GET_ALL_PRODUCER_INFO)
        assert [each["clientId"] for each in json.loads(everybody.body)["data"]["shop"]] == ["producer"]
        nobody = await producer.ask(
            RequestCode.GET_PRODUCER_CONNECTION_LIST, GetProducerConnectionListRequest(producer_group="none")
        )
        assert (nobody.code, nobody.remark) == (1, "the producer group[none] not exist")


async def test_progress_of_a_group_and_of_a_topic(tmp_path: Path) -> None:
    """B9."""
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(tags(TOPIC))
        for _ in range(3):
            await consumer.send(b"order")
        await consumer.pull(0)
        visit.context.offsets.commit("somebody", GROUP, TOPIC, 0, 2)
        stats = await consumer.ask(
            RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequest(consumer_group=GROUP)
        )
        progress = by_queue(fastjson.loads(stats.body)["offsetTable"])
        assert sorted(progress) == [0, 1, 2, 3]
        stored_ms = progress[0].pop("lastTimestamp")
        assert stored_ms > 0
        assert progress[0] == {"brokerOffset": 3, "consumerOffset": 2, "pullOffset": 3}
        nothing = {"brokerOffset": 0, "consumerOffset": 0, "lastTimestamp": 0, "pullOffset": 0}
        assert progress[1] == {**nothing, "hasOffset": False}, "0 is not an offset here"
        topic = await consumer.ask(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequest(topic=TOPIC))
        queues = by_queue(fastjson.loads(topic.body)["offsetTable"])
        assert (queues[0]["minOffset"], queues[0]["maxOffset"]) == (0, 3)
        assert queues[1] == {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
        missing = await consumer.ask(
            RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequest(topic="Nothing")
        )
        assert missing.code == 17
        everybody = await consumer.ask(
            RequestCode.GET_BROKER_CONSUME_STATS, GetConsumeStatsInBroker(is_order=False)
        )
        assert fastjson.loads(everybody.body)["totalDiff"] == 1
        span = await consumer.ask(
            RequestCode.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpanRequest(topic=TOPIC, group=GROUP)
        )
        first = fastjson.loads(span.body)["consumeTimeSpanSet"][0]
        assert first["consumeTimeStamp"] == stored_ms
        assert 0 <= first["delayTime"] < 60_000


async def test_who_reads_what(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(tags(TOPIC, "paid"))
        visit.context.offsets.commit("somebody", "past", TOPIC, 0, 2)
        groups = await consumer.ask(
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, QueryTopicConsumeByWhoRequest(topic=TOPIC)
        )
        assert json.loads(groups.body) == {"groupList": [GROUP, "past"]}
        topics = await consumer.ask(
            RequestCode.QUERY_TOPICS_BY_CONSUMER, QueryTopicsByConsumerRequest(group="past")
        )
        assert json.loads(topics.body) == {"topicList": [TOPIC]}
        subscription = await consumer.ask(
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
            QuerySubscriptionByConsumerRequest(group=GROUP, topic=TOPIC),
        )
        assert json.loads(subscription.body)["subscriptionData"]["subString"] == "paid"


async def test_a_question_is_handed_on_to_a_client_and_its_answer_back(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        consumer, admin = visit.visitor("consumer"), visit.visitor("admin")
        await consumer.heartbeat(tags(TOPIC))
        consumer.answers[RequestCode.GET_CONSUMER_RUNNING_INFO] = lambda _: Answer(body=RUNNING_INFO)
        header = GetConsumerRunningInfoRequest(consumer_group=GROUP, client_id="consumer")
        answer = await admin.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        assert (answer.code, answer.body) == (0, RUNNING_INFO)
        assert consumer.heard[-1][1]["clientId"] == "consumer"
        header = GetConsumerRunningInfoRequest(consumer_group=GROUP, client_id="nobody")
        offline = await admin.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        assert (offline.code, offline.remark) == (1, f"The Consumer <{GROUP}> <nobody> not online")


async def test_a_client_consumes_one_message_on_demand(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        consumer, admin = visit.visitor("consumer"), visit.visitor("admin")
        await consumer.heartbeat(tags(TOPIC))
        sent = await consumer.send(b"order")

        def consume(request: Command) -> Answer:
            assert decode_record(request.body).body == b"order"
            return Answer(body=b'{"consumeResult":"CR_SUCCESS"}')

        consumer.answers[RequestCode.CONSUME_MESSAGE_DIRECTLY] = consume
        header = ConsumeMessageDirectlyResultRequest(
            consumer_group=GROUP, client_id="consumer", msg_id=sent.fields["msgId"]
        )
        answer = await admin.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        assert answer.body == b'{"consumeResult":"CR_SUCCESS"}'
        assert consumer.heard[-1][1]["brokerName"] == "broker-a"


@pytest.mark.parametrize("msg_id", [None, "nonsense", "7F00000100002A9F00000000000FFFFF"])
async def test_a_message_that_is_not_there_is_not_handed_on(tmp_path: Path, msg_id: str | None) -> None:
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor("consumer")
        await consumer.heartbeat(tags(TOPIC))
        header = ConsumeMessageDirectlyResultRequest(
            consumer_group=GROUP, client_id="consumer", msg_id=msg_id
        )
        answer = await consumer.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        assert answer.code == 1
        assert answer.remark
        assert consumer.times_heard(RequestCode.CONSUME_MESSAGE_DIRECTLY) == 0


async def test_clients_say_where_they_are(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        first, second = visit.visitor("first"), visit.visitor("second")
        for visitor, offset in ((first, 3), (second, 5)):
            await visitor.heartbeat(tags(TOPIC))
            visitor.answers[RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT] = partial(_status, offset)
        header = GetConsumerStatusRequest(topic=TOPIC, group=GROUP)
        answer = await first.ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
        table = fastjson.loads(answer.body)["consumerTable"]
        assert {client: by_queue(offsets) for client, offsets in table.items()} == {
            "first": {0: 3},
            "second": {0: 5},
        }
        header = GetConsumerStatusRequest(topic=TOPIC, group=GROUP, client_addr="second")
        answer = await first.ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
        assert list(fastjson.loads(answer.body)["consumerTable"]) == ["second"]
        nobody = await first.ask(
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            GetConsumerStatusRequest(topic=TOPIC, group="none"),
        )
        assert (nobody.code, nobody.remark) == (1, "No Any Consumer online in the consumer group: [none]")
