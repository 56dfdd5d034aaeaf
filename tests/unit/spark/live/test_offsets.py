"""Offsets as Spark keeps them, and how much a trigger takes of what is there (D1)."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.queue import MessageQueue
from cometmq.spark.live.offsets import advance, backlog_of, from_nested, share, share_bytes, to_nested
from cometmq.spark.live.partitions import SMALL_PARTITION, QueueRange, partitions_of, ranges_between


def queue(number: int) -> MessageQueue:
    return MessageQueue("orders", f"broker-{number % 3}", number)


backlogs = st.dictionaries(st.integers(0, 20).map(queue), st.integers(1, 10**12), min_size=1)
ranges = st.dictionaries(
    st.integers(0, 20).map(queue), st.tuples(st.integers(0, 10**9), st.integers(1, 100_000)), min_size=1
).map(lambda found: [QueueRange(each, start, start + count) for each, (start, count) in found.items()])


def test_the_same_offsets_are_the_same_text_in_whatever_order_they_came() -> None:
    there = {queue(number): number for number in range(20)}
    back = dict(reversed(there.items()))
    assert json.dumps(to_nested(there)) == json.dumps(to_nested(back))
    assert from_nested(json.loads(json.dumps(to_nested(there)))) == there


@given(backlogs, st.integers(1, 10**9))
def test_a_limit_is_used_up_and_never_exceeded(backlog: dict[MessageQueue, int], limit: int) -> None:
    taken = share(backlog, limit)
    assert sum(taken.values()) == min(limit, sum(backlog.values()))
    assert all(0 <= taken[each] <= backlog[each] for each in backlog)


def test_queues_get_their_share_in_proportion_to_what_waits_in_them() -> None:
    backlog = {queue(0): 9000, queue(1): 1000}
    assert share(backlog, 100) == {queue(0): 90, queue(1): 10}


@given(backlogs, st.integers(1, 10**9))
def test_a_limit_of_bytes_lets_at_least_one_message_through(
    backlog: dict[MessageQueue, int], limit: int
) -> None:
    sizes = {each: 100.0 + each.queue_id for each in backlog}
    taken = share_bytes(backlog, sizes, limit)
    assert sum(taken.values()) >= 1
    assert sum(taken[each] * sizes[each] for each in taken) <= max(limit, 120)


def test_what_waits_is_counted_only_where_something_does() -> None:
    start = {queue(0): 5, queue(1): 5, queue(2): 5}
    assert backlog_of(start, {queue(0): 9, queue(1): 5}) == {queue(0): 4}
    assert advance(start, {queue(0): 4}) == {queue(0): 9, queue(1): 5, queue(2): 5}


@given(ranges, st.none() | st.integers(1, 50), st.none() | st.integers(1, 50_000))
def test_partitions_hold_every_offset_once(
    given_ranges: list[QueueRange], min_partitions: int | None, max_records: int | None
) -> None:
    if max_records is not None:
        max_records = max(max_records, max(each.count for each in given_ranges) // 50)
    found = partitions_of(given_ranges, min_partitions=min_partitions, max_records=max_records)

    pieces = sorted(
        (each for part in found for each in part.ranges), key=lambda each: (each.queue, each.start)
    )
    merged: list[QueueRange] = []
    for piece in pieces:
        assert piece.count > 0
        if merged and merged[-1].queue == piece.queue:
            assert merged[-1].end == piece.start
            merged[-1] = QueueRange(piece.queue, merged[-1].start, piece.end)
        else:
            merged.append(piece)
    assert merged == sorted(given_ranges, key=lambda each: each.queue)
    counts = [sum(each.count for each in part.ranges) for part in found]
    if max_records is not None:
        assert max(counts) <= max_records
    if min_partitions is not None:
        assert len(found) >= min(min_partitions, sum(each.count for each in given_ranges))


def test_a_queue_is_a_partition_and_small_ones_share_one() -> None:
    large = [QueueRange(queue(number), 0, 10 * SMALL_PARTITION) for number in range(3)]
    small = [QueueRange(queue(number), 0, SMALL_PARTITION // 10) for number in range(3, 9)]
    assert [len(part.ranges) for part in partitions_of([*large, *small])] == [1, 1, 1, 6]


def test_a_queue_without_new_messages_is_not_read() -> None:
    start, end = {queue(0): 3, queue(1): 3, queue(2): 3}, {queue(0): 3, queue(1): 5, queue(2): 1}
    assert ranges_between(start, end) == [QueueRange(queue(1), 3, 5)]
    assert partitions_of([]) == []
