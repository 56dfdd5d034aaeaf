"""Heartbeats as bodies."""

from __future__ import annotations

import msgspec

from cometmq.wire.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
    decode_heartbeat,
    encode_heartbeat,
    heartbeat_fingerprint,
    short_heartbeat,
)

SUBSCRIPTION = SubscriptionData("orders", "a || b", ("a", "b"), (97, 98), 17)
CONSUMER = ConsumerData(
    "billing",
    ConsumeType.CONSUME_PASSIVELY,
    MessageModel.CLUSTERING,
    ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    (SUBSCRIPTION,),
)
HEARTBEAT = HeartbeatData("10.0.0.1@7", (ProducerData("shop"),), (CONSUMER,))


def test_a_heartbeat_is_written_as_java_writes_it() -> None:
    assert encode_heartbeat(HEARTBEAT).decode() == (
        '{"clientID":"10.0.0.1@7","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",'
        '"consumeType":"CONSUME_PASSIVELY","groupName":"billing","messageModel":"CLUSTERING",'
        '"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[97,98],"expressionType":"TAG",'
        '"subString":"a || b","subVersion":17,"tagsSet":["a","b"],"topic":"orders"}],"unitMode":false}],'
        '"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"shop"}],"withoutSub":false}'
    )
    assert decode_heartbeat(encode_heartbeat(HEARTBEAT)) == HEARTBEAT


def test_members_that_older_clients_leave_out_have_their_defaults() -> None:
    read = decode_heartbeat(b'{"clientID":"c","producerDataSet":[{"groupName":"g"}],"somethingNew":1}')
    assert read == HeartbeatData("c", (ProducerData("g"),))


def test_the_fingerprint_tells_other_subscriptions_and_groups_apart_and_nothing_else() -> None:
    mark = heartbeat_fingerprint(HEARTBEAT)
    newer = msgspec.structs.replace(
        CONSUMER, subscription_data_set=(msgspec.structs.replace(SUBSCRIPTION, sub_version=99),)
    )
    other = msgspec.structs.replace(
        CONSUMER, subscription_data_set=(msgspec.structs.replace(SUBSCRIPTION, sub_string="a"),)
    )
    assert heartbeat_fingerprint(msgspec.structs.replace(HEARTBEAT, client_id="x")) == mark
    assert heartbeat_fingerprint(msgspec.structs.replace(HEARTBEAT, consumer_data_set=(newer,))) == mark
    assert heartbeat_fingerprint(msgspec.structs.replace(HEARTBEAT, consumer_data_set=(other,))) != mark
    assert heartbeat_fingerprint(msgspec.structs.replace(HEARTBEAT, producer_data_set=())) != mark


def test_a_short_heartbeat_has_the_groups_without_their_subscriptions() -> None:
    short = short_heartbeat(HEARTBEAT, 5)
    assert short.without_sub
    assert short.heartbeat_fingerprint == 5
    assert [group.group_name for group in short.consumer_data_set] == ["billing"]
    assert short.consumer_data_set[0].subscription_data_set == ()
