"""What brokers and consumers tell each other about locks and the state of a consumer."""

from __future__ import annotations

import pytest

from cometmq.model.errors import HeaderError
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.consumer_info import (
    ConsumeDirectlyResult,
    ConsumerRunningInfo,
    ConsumeStatus,
    DirectResult,
    ProcessQueueInfo,
    decode_consumer_ids,
    decode_lock_request,
    decode_locked,
    encode_consume_directly_result,
    encode_lock_request,
    encode_locked,
    encode_running_info,
)
from cometmq.wire.bodies.heartbeat import SubscriptionData
from cometmq.wire.json import fastjson

QUEUE = MessageQueue("orders", "broker-a", 3)


def test_running_info_has_javas_names_and_queues_as_keys() -> None:
    """C6."""
    info = ConsumerRunningInfo(
        properties={"b": "2", "a": "1"},
        subscription_set=(SubscriptionData("orders", "paid", ("paid",), (1,), 7),),
        mq_table={QUEUE: ProcessQueueInfo(commit_offset=5, cached_msg_size_in_mib=1)},
        status_table={"orders": ConsumeStatus(consume_ok_tps=1.5)},
    )
    text = encode_running_info(info).decode()
    assert '"mqTable":{{"brokerName":"broker-a","queueId":3,"topic":"orders"}:{"cachedMsgCount":0' in text
    assert '"cachedMsgSizeInMiB":1' in text
    assert '"droped":false' in text
    assert '"properties":{"a":"1","b":"2"}' in text
    assert '"consumeOKTPS":1.5' in text
    assert "jstack" not in text
    members = fastjson.loads(text)
    assert list(members) == sorted(members)
    assert members["subscriptionSet"][0]["subString"] == "paid"


def test_the_report_about_one_message_has_javas_names() -> None:
    """C6."""
    result = ConsumeDirectlyResult(consume_result=DirectResult.CR_LATER, remark="no", spent_time_mills=4)
    assert encode_consume_directly_result(result) == (
        b'{"autoCommit":true,"consumeResult":"CR_LATER","order":false,"remark":"no","spentTimeMills":4}'
    )


def test_locks_are_asked_for_and_answered_as_java_does() -> None:
    """C5."""
    body = encode_lock_request("billing", "1.2.3.4@1", [QUEUE])
    assert body == (
        b'{"clientId":"1.2.3.4@1","consumerGroup":"billing",'
        b'"mqSet":[{"brokerName":"broker-a","queueId":3,"topic":"orders"}],"onlyThisBroker":false}'
    )
    request = decode_lock_request(body)
    assert (request.consumer_group, request.client_id, request.queues) == ("billing", "1.2.3.4@1", (QUEUE,))
    assert encode_locked([QUEUE]) == (
        b'{"lockOKMQSet":[{"brokerName":"broker-a","queueId":3,"topic":"orders"}]}'
    )
    assert decode_locked(encode_locked([QUEUE])) == (QUEUE,)
    assert decode_locked(b"{}") == ()


def test_client_ids_are_read_and_nobody_is_nobody() -> None:
    """C2."""
    assert decode_consumer_ids(b'{"consumerIdList":["a","b"]}') == ("a", "b")
    assert decode_consumer_ids(b"{}") == decode_consumer_ids(b"") == ()
    with pytest.raises(HeaderError):
        decode_consumer_ids(b"[1")
