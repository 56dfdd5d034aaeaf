"""The messages that stand for dead letters (B8)."""

from __future__ import annotations

import msgspec

from cometmq.client.admin.redrive import (
    REDRIVEN_FROM,
    origin_topic,
    progress_group,
    redrive_id,
    redriven,
)
from cometmq.model.message import Host, StoredMessage
from tests.unique_ids import parse_unique_id

DEAD = StoredMessage(
    topic="%DLQ%billing",
    body=b"body",
    properties={
        "RETRY_TOPIC": "orders",
        "UNIQ_KEY": "0" * 32,
        "KEYS": "1 2",
        "TAGS": "paid",
        "__SHARDINGKEY": "customer",
        "colour": "red",
        "DELAY": "3",
    },
    broker_name="a",
    queue_id=0,
    queue_offset=7,
    commit_log_offset=1000,
    store_size=100,
    body_crc=0,
    flag=5,
    sys_flag=0,
    born_timestamp_ms=1_700_000_000_000,
    born_host=Host("10.0.0.9", 1),
    store_timestamp_ms=1_700_000_000_500,
    store_host=Host("10.0.0.1", 10911),
    reconsume_times=16,
    prepared_transaction_offset=0,
    offset_msg_id="0A00000100002A9F00000000000003E8",
)


def test_what_the_application_had_set_is_sent_again_and_nothing_of_the_system() -> None:
    message = redriven(DEAD, "orders")
    assert (message.topic, message.body, message.tags, message.keys) == (
        "orders",
        b"body",
        "paid",
        ("1", "2"),
    )
    assert (message.flag, message.sharding_key) == (5, "customer")
    assert message.properties == {"colour": "red", REDRIVEN_FROM: DEAD.offset_msg_id}
    assert message.delay_level == 0


def test_a_dead_letter_always_gets_the_same_id_and_no_two_share_one() -> None:
    """An id like any other: tools find the address of the broker in it, and a time before it was stored."""
    first = redrive_id(DEAD)
    assert first == redrive_id(DEAD)
    assert parse_unique_id(first).ip == "10.0.0.1"
    others = [
        msgspec.structs.replace(DEAD, queue_offset=8),
        msgspec.structs.replace(DEAD, broker_name="b"),
        msgspec.structs.replace(DEAD, topic="%DLQ%other"),
        msgspec.structs.replace(DEAD, store_host=Host("::1", 10911)),
    ]
    assert len({first, *map(redrive_id, others)}) == 5


def test_the_topic_is_the_one_that_was_consumed_in_vain() -> None:
    assert origin_topic(DEAD) == "orders"
    named = msgspec.structs.replace(DEAD, properties={**DEAD.properties, "DLQ_ORIGIN_TOPIC": "payments"})
    assert origin_topic(named) == "payments"
    assert origin_topic(msgspec.structs.replace(DEAD, properties={})) is None


def test_the_group_of_the_progress_has_a_name_that_brokers_take() -> None:
    assert progress_group("billing") == "redrive-billing"
    long = ["g" * 119 + letter for letter in "ab"]
    assert all(len(progress_group(group)) == 120 for group in long)
    assert len({progress_group(group) for group in long}) == 2
