"""Filters: what they want of a queue unit, of a record, and of a message that has just come."""

from __future__ import annotations

from cometmq.broker.groups.subscriptions import make_subscription
from cometmq.broker.pull.filters import SqlFilter, retry_filter, tag_filter
from cometmq.wire.bodies.heartbeat import SubscriptionData
from cometmq.wire.java_hash import java_hash
from cometmq.wire.record.codec import Record, encode_record
from cometmq.wire.record.properties import encode_properties
from cometmq.wire.sql92.expression import Expression, compile_sql


def record(**properties: str) -> memoryview:
    return memoryview(encode_record(Record("T", b"body", encode_properties(properties))))


def test_tags_are_compared_by_their_hash() -> None:
    wanted = tag_filter(make_subscription("T", "paid || open", None))
    assert wanted is not None
    assert wanted.wants_unit(java_hash("paid"), None)
    assert not wanted.wants_unit(java_hash("closed"), None)
    assert not wanted.wants_unit(0, None)
    assert wanted.wants_record(record(TAGS="closed"))
    assert wanted.wants_arrival(java_hash("open"), b"")


def test_a_subscription_to_everything_needs_no_filter() -> None:
    assert tag_filter(SubscriptionData("T")) is None
    assert tag_filter(SubscriptionData("T", "paid", class_filter_mode=True)) is None


def test_sql_looks_at_the_properties() -> None:
    wanted = SqlFilter(compile_sql("amount > 100").matches)
    assert wanted.wants_unit(0, None)
    assert wanted.wants_record(record(amount="101"))
    assert not wanted.wants_record(record(amount="99"))
    assert wanted.wants_arrival(0, encode_properties({"amount": "101"}))


def test_a_record_that_cannot_be_read_is_not_wanted() -> None:
    broken = record(amount="101")[:-1]
    assert not SqlFilter(compile_sql("amount > 100").matches).wants_record(broken)
    assert not retry_filter(lambda _: None).wants_record(broken)


def test_a_message_that_comes_once_more_is_asked_what_its_first_topic_asks() -> None:
    expressions: dict[str, Expression] = {"Orders": compile_sql("amount > 100")}
    wanted = retry_filter(expressions.get)
    assert wanted.wants_unit(0, None)
    assert wanted.wants_record(record(RETRY_TOPIC="Orders", amount="101"))
    assert not wanted.wants_record(record(RETRY_TOPIC="Orders", amount="99"))
    assert wanted.wants_record(record(RETRY_TOPIC="Other", amount="99"))
    assert wanted.wants_record(record(amount="99"))
