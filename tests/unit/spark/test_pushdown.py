"""Filters that the source applies itself leave the same messages as Spark would (D1)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from cometmq.model.queue import MessageQueue
from cometmq.spark.pushdown import CLOCK_SLACK_MS, Wanted, filters_are_pushed, push


def test_topic_and_queue_choose_queues_and_need_no_second_look() -> None:
    wanted, left = push([In(("topic",), ("a", "b", None)), EqualTo(("queueId",), 3)], Wanted())
    assert left == []
    assert wanted.wants(MessageQueue("a", "broker", 3))
    assert not wanted.wants(MessageQueue("a", "broker", 2))
    assert not wanted.wants(MessageQueue("c", "broker", 3))


@pytest.mark.parametrize(
    ("filters", "offsets"),
    [
        ([EqualTo(("queueOffset",), 7)], (7, 8)),
        ([GreaterThan(("queueOffset",), 7), LessThan(("queueOffset",), 9)], (8, 9)),
        ([GreaterThanOrEqual(("queueOffset",), 7), LessThanOrEqual(("queueOffset",), 9)], (7, 10)),
        (
            [
                GreaterThan(("queueOffset",), 3),
                GreaterThan(("queueOffset",), 1),
                LessThan(("queueOffset",), 5),
            ],
            (4, 5),
        ),
    ],
)
def test_offsets_shorten_the_ranges(filters: list[Filter], offsets: tuple[int, int]) -> None:
    wanted, left = push(filters, Wanted())
    assert left == []
    assert wanted.offsets == offsets


def test_times_shorten_them_with_some_slack_and_spark_looks_again() -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    filters: list[Filter] = [GreaterThanOrEqual(("storeTimestamp",), noon)]
    wanted, left = push(filters, Wanted())
    assert left == filters
    assert wanted.times_ms[0] == round(noon.timestamp() * 1000) - CLOCK_SLACK_MS
    assert wanted.limits_times
    assert not Wanted().limits_times


def test_tags_go_to_the_broker_and_spark_looks_again() -> None:
    filters: list[Filter] = [In(("tags",), ("a", "b"))]
    wanted, left = push(filters, Wanted())
    assert left == filters
    assert wanted.tags == frozenset({"a", "b"})


def test_ids_are_for_the_index_and_spark_looks_again() -> None:
    filters: list[Filter] = [EqualTo(("msgId",), "x")]
    wanted, left = push(filters, Wanted())
    assert left == filters
    assert wanted.msg_ids == frozenset({"x"})


def test_everything_else_is_left_to_spark() -> None:
    filters = [
        IsNotNull(("topic",)),
        Not(EqualTo(("topic",), "a")),
        StringStartsWith(("topic",), "a"),
        EqualTo(("bornHost",), "x"),
        EqualTo(("properties", "key"), "x"),
        EqualTo(("topic",), None),
    ]
    assert push(filters, Wanted()) == (Wanted(), filters)


def test_no_filters_are_pushed_outside_the_process_that_spark_makes_for_it() -> None:
    assert not filters_are_pushed()
