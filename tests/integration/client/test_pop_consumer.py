"""Pop consumers and a broker that does what a test tells it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cometmq.client.consumer.listener import ConsumeContext
from cometmq.client.consumer.pop.consumer import PopConsumer
from cometmq.client.consumer.pop.queues import PopQueue
from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.remoting.handler import Answer
from cometmq.wire.codes import ResponseCode
from tests.integration.client.pop_client_kit import POP_TIME_MS, WHOLE, pop_cluster, popped, record
from tests.integration.client.queue_broker_kit import BROKER, GROUP, TOPIC, queue
from tests.waiting import eventually

RETRY_V1 = f"%RETRY%{GROUP}_{TOPIC}"


def fails(message: StoredMessage) -> None:
    raise ValueError("cannot be billed")


def held_by(consumer: PopConsumer) -> int:
    """How many messages a consumer has popped and not settled."""
    held = 0
    for pq in consumer._running().queues.table.values():
        assert isinstance(pq, PopQueue)
        held += pq.waiting
    return held


class Gate:
    """A listener that returns when it is told to."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.open = asyncio.Event()

    async def __call__(self, message: StoredMessage) -> None:
        self.seen.append(message.body.decode())
        await self.open.wait()


# What is popped.


async def test_a_consumer_pops_what_the_broker_assigns() -> None:
    """B12."""
    async with pop_cluster() as cluster:
        cluster.broker.mode, cluster.broker.assigned = "POP", [queue(1)]
        async with cluster.make_consumer() as consumer:
            await eventually(lambda: len(cluster.broker.pops) == 1, "the queue is popped")
            assert consumer.assignment() == {queue(1)}
        (query,) = cluster.broker.queries
        assert (query.topic, query.consumer_group, query.strategy_name) == (TOPIC, GROUP, "AVG")
        (asked,) = cluster.broker.pops
        assert (asked.queue_id, asked.max_msg_nums, asked.init_mode) == (1, 32, 0)
        assert (asked.invisible_time, asked.poll_time, asked.order) == (60_000, 15_000, False)
        assert (asked.exp_type, asked.exp) == ("TAG", "*")


@pytest.mark.parametrize(
    "told", [{"assigned": [queue(0)]}, {"assigned": []}, {"knows_assignments": False}], ids=str
)
async def test_a_broker_that_assigns_no_pops_is_popped_as_a_whole(told: dict[str, Any]) -> None:
    """B12: it would have the consumer pull, or knows nothing of assignments."""
    async with pop_cluster() as cluster:
        for name, value in told.items():
            setattr(cluster.broker, name, value)
        async with cluster.make_consumer() as consumer:
            await eventually(lambda: len(cluster.broker.pops) == 1, "the broker is popped")
            assert consumer.assignment() == {WHOLE}


async def test_a_broker_that_has_nothing_to_say_changes_nothing() -> None:
    """B12: it is asked again soon."""
    async with pop_cluster() as cluster:
        cluster.broker.mode, cluster.broker.assigned = "POP", [queue(1)]
        async with cluster.make_consumer(rebalance_interval_ms=20) as consumer:
            await eventually(lambda: consumer.assignment() == {queue(1)}, "the queue is assigned")
            cluster.broker.assigned = None
            asked = len(cluster.broker.queries)
            await eventually(lambda: len(cluster.broker.queries) > asked + 2, "the broker is asked again")
            assert consumer.assignment() == {queue(1)}
            cluster.broker.assigned = [queue(0)]
            await eventually(lambda: consumer.assignment() == {queue(0)}, "the assignment changes")


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.POLLING_FULL,
        ResponseCode.POLLING_TIMEOUT,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.SYSTEM_ERROR,
    ],
)
async def test_a_broker_without_messages_is_asked_again(code: ResponseCode) -> None:
    """B12."""
    async with pop_cluster() as cluster:
        cluster.broker.give(Answer(code), Answer(code), popped(record("a", 0)))
        async with cluster.make_consumer():
            await cluster.sees("a")


async def test_popping_waits_while_too_much_is_not_acknowledged() -> None:
    """B12."""
    async with pop_cluster() as cluster:
        gate = Gate()
        cluster.broker.give(*(popped(record(f"m{at}", at)) for at in range(4)))
        async with cluster.make_consumer(gate, pop_threshold_for_queue=1) as consumer:
            await eventually(lambda: len(gate.seen) == 2, "more than one message is held")
            (pq,) = consumer._running().queues.table.values()
            await eventually(lambda: pq.flow_control_times > 0, "popping waits")
            assert len(cluster.broker.pops) == 2
            gate.open.set()
            await eventually(lambda: cluster.broker.acked == [0, 1, 2, 3], "it goes on")


# Acknowledgements.


async def test_one_message_is_acknowledged_with_its_handle() -> None:
    """B12."""
    async with pop_cluster() as cluster:
        cluster.broker.give(popped(record("a", 7, queue_id=1), starts="0 1 5", offsets="0 1 7"))
        async with cluster.make_consumer():
            await eventually(lambda: bool(cluster.broker.acks), "the message is acknowledged")
        (ack,) = cluster.broker.acks
        assert (ack.consumer_group, ack.topic, ack.queue_id, ack.offset) == (GROUP, TOPIC, 1, 7)
        assert ack.extra_info == f"5 {POP_TIME_MS} 60000 3 0 {BROKER} 1 7"


async def test_a_message_that_came_again_is_acknowledged_where_it_is() -> None:
    """B12: in the retry topic, with the handle that it brought along."""
    async with pop_cluster() as cluster:
        handle = f"4 {POP_TIME_MS} 60000 3 1 {BROKER} 0 4"
        again = record("a", 4, attempts=1, POP_CK=handle)
        cluster.broker.give(popped(again, starts="1 0 4", offsets="1 0 4"))
        async with cluster.make_consumer():
            await eventually(lambda: bool(cluster.broker.acks), "the message is acknowledged")
        (ack,) = cluster.broker.acks
        assert (ack.topic, ack.extra_info, ack.offset) == (RETRY_V1, handle, 4)
        assert [(each.topic, each.reconsume_times) for each in cluster.seen] == [(TOPIC, 1)]


async def test_what_is_done_while_an_acknowledgement_is_under_way_goes_together() -> None:
    """B12."""
    async with pop_cluster() as cluster:
        broker = cluster.broker
        broker.acks_wait = asyncio.Event()
        records = [record(f"m{at}", at, queue_id=at % 2) for at in range(10)]
        broker.give(popped(record("x", 100), starts="0 0 100"), popped(*records, starts="0 0 0;0 1 1"))
        async with cluster.make_consumer():
            await eventually(lambda: len(cluster.seen) == 11, "everything is consumed")
            broker.acks_wait.set()
            await eventually(lambda: broker.acked == [*range(10), 100], "everything is acknowledged")
        (batch,) = broker.batches
        assert [(ack.queue_id, ack.start_offset, ack.offsets) for ack in batch] == [
            (0, 0, [0, 2, 4, 6, 8]),
            (1, 1, [1, 3, 5, 7, 9]),
        ]
        assert {(ack.group, ack.topic, ack.mark, ack.revive_queue) for ack in batch} == {
            (GROUP, TOPIC, "0", 3)
        }
        assert {(ack.pop_time_ms, ack.invisible_ms) for ack in batch} == {(POP_TIME_MS, 60_000)}


async def test_a_broker_without_batches_gets_acknowledgements_one_by_one() -> None:
    """B12."""
    async with pop_cluster() as cluster:
        cluster.broker.knows_batches = False
        cluster.broker.give(popped(*(record(f"m{at}", at) for at in range(8))))
        async with cluster.make_consumer():
            await eventually(lambda: cluster.broker.acked == list(range(8)), "everything is acknowledged")
        assert len(cluster.broker.acks) == 8


@pytest.mark.parametrize("trouble", [None, Answer(ResponseCode.SYSTEM_BUSY)], ids=["lost", "busy"])
async def test_an_acknowledgement_that_did_not_get_through_is_sent_again(trouble: Answer | None) -> None:
    """B12."""
    async with pop_cluster() as cluster:
        cluster.broker.ack_answers.append(trouble)
        cluster.broker.give(popped(record("a", 0)))
        async with cluster.make_consumer():
            await eventually(lambda: cluster.broker.acked == [0], "the message is acknowledged after all")
        assert cluster.bodies == ["a"]


async def test_an_acknowledgement_that_is_refused_makes_room_all_the_same() -> None:
    """B12."""
    async with pop_cluster() as cluster:
        cluster.broker.ack_answers.append(Answer(ResponseCode.NO_MESSAGE, remark="offset is illegal"))
        cluster.broker.give(popped(record("a", 0)))
        async with cluster.make_consumer() as consumer:
            await eventually(lambda: len(cluster.broker.acks) == 1, "the broker was told")
            await eventually(lambda: held_by(consumer) == 0, "nothing is held")


async def test_a_message_with_a_tag_that_nobody_wants_is_acknowledged_unseen() -> None:
    """B8: tags with the same hash pass the broker."""
    async with pop_cluster() as cluster:
        cluster.broker.give(popped(record("a", 0, TAGS="AaAa"), record("b", 1, TAGS="BBBB")))
        async with cluster.make_consumer(expression="BBBB"):
            await eventually(lambda: cluster.broker.acked == [0, 1], "both are acknowledged")
        assert cluster.bodies == ["b"]


# Failures.


@pytest.mark.parametrize(("attempts", "delay_s"), [(0, 10), (1, 30), (5, 240), (15, 7200)])
async def test_a_message_that_failed_comes_again_after_a_growing_delay(attempts: int, delay_s: int) -> None:
    """B12, C5."""
    async with pop_cluster() as cluster:
        cluster.broker.give(popped(record("a", 3, attempts=attempts), starts="0 0 3"))
        async with cluster.make_consumer(fails):
            await eventually(lambda: bool(cluster.broker.changes), "the broker is told")
        (change,) = cluster.broker.changes
        assert (change.topic, change.offset, change.invisible_time) == (TOPIC, 3, delay_s * 1000)
        assert change.extra_info == f"3 {POP_TIME_MS} 60000 3 0 {BROKER} 0 3"
        assert not cluster.broker.acked


async def test_a_listener_may_choose_the_delay() -> None:
    """C5."""

    def chooses(message: StoredMessage, context: ConsumeContext) -> None:
        context.delay_level = 2
        raise ValueError("later")

    async with pop_cluster() as cluster:
        cluster.broker.give(popped(record("a", 0)))
        async with cluster.make_consumer(chooses):
            await eventually(lambda: bool(cluster.broker.changes), "the broker is told")
        assert cluster.broker.changes[0].invisible_time == 60_000


async def test_a_message_that_failed_too_often_is_made_a_dead_letter_and_acknowledged() -> None:
    """C5."""
    async with pop_cluster() as cluster:
        cluster.broker.give(popped(record("a", 3, attempts=16), starts="0 0 3"))
        async with cluster.make_consumer(fails):
            await eventually(lambda: cluster.broker.acked == [3], "the message is acknowledged")
        (sent_back,) = cluster.broker.sent_back
        assert (sent_back.offset, sent_back.group, sent_back.delay_level) == (3000, GROUP, -1)
        assert not cluster.broker.changes


async def test_a_dead_letter_that_nobody_takes_is_not_acknowledged() -> None:
    """C5."""
    async with pop_cluster() as cluster:
        cluster.broker.send_back_codes.append(ResponseCode.SYSTEM_ERROR)
        cluster.broker.give(popped(record("a", 3, attempts=16), starts="0 0 3"))
        async with cluster.make_consumer(fails) as consumer:
            await eventually(lambda: bool(cluster.broker.sent_back), "the broker was asked")
            await eventually(lambda: held_by(consumer) == 0, "nothing is held")
        assert not cluster.broker.acked


async def test_a_message_whose_time_is_over_is_left_alone() -> None:
    """B12: the broker gives it to somebody else."""
    async with pop_cluster() as cluster:
        cluster.broker.give(popped(record("late", 0), invisible_ms=0), popped(record("a", 1)))
        async with cluster.make_consumer():
            await cluster.sees("a")
            await eventually(lambda: cluster.broker.acked == [1], "the other one is acknowledged")
        assert not cluster.broker.changes


async def test_of_a_list_only_what_is_done_is_acknowledged() -> None:
    """C5."""

    def half(messages: list[StoredMessage], context: ConsumeContext) -> None:
        context.done_count = 2

    async with pop_cluster() as cluster:
        cluster.broker.give(popped(*(record(f"m{at}", at) for at in range(4))))
        async with cluster.make_consumer(half, consume_message_batch_max_size=4):
            await eventually(lambda: len(cluster.broker.changes) == 2, "the others come again")
            await eventually(lambda: cluster.broker.acked == [0, 1], "the first are acknowledged")
        assert sorted(change.offset for change in cluster.broker.changes) == [2, 3]


# Order.


async def test_where_order_is_kept_everything_behind_a_failure_waits() -> None:
    """B12."""
    seen: list[tuple[str, int]] = []

    def fails_at_m1(message: StoredMessage) -> None:
        seen.append((message.body.decode(), message.reconsume_times))
        if message.body == b"m1":
            raise ValueError("not yet")

    async with pop_cluster() as cluster:
        records = [record(f"m{at}", at) for at in range(4)]
        cluster.broker.give(popped(*records, counts="0 0 0;0 qo0%1 2", revive_queue=999))
        async with cluster.make_consumer(fails_at_m1, ordered=True, suspend_current_queue_time_ms=500):
            await eventually(lambda: len(cluster.broker.changes) == 3, "three messages wait")
            await eventually(lambda: cluster.broker.acked == [0], "the first is done")
        assert seen == [("m0", 0), ("m1", 2)]
        assert {change.invisible_time for change in cluster.broker.changes} == {500}
        assert cluster.broker.pops[0].order


async def test_an_ordered_pop_whose_answer_was_lost_is_repeated_as_the_same_attempt() -> None:
    """B12: the broker would else hold the queue back until the time of the lost messages is over."""
    async with pop_cluster() as cluster:
        async with cluster.make_consumer(ordered=True):
            await eventually(lambda: len(cluster.broker.waiting) == 1, "a pop waits")
            cluster.broker.waiting.pop()[1].close("on purpose")
            await eventually(lambda: len(cluster.broker.pops) == 2, "it is repeated")
            cluster.broker.give(popped(record("a", 0), revive_queue=999))
            await eventually(lambda: len(cluster.broker.pops) == 3, "the next pop follows")
        first, again, next_ = (each.attempt_id for each in cluster.broker.pops)
        assert first == again != next_


# The end, and what brokers ask.


async def test_a_stop_gives_back_what_no_listener_has_begun() -> None:
    """B12."""
    async with pop_cluster() as cluster:
        gate = Gate()
        cluster.broker.give(popped(*(record(f"m{at}", at) for at in range(5))))
        consumer = cluster.make_consumer(gate, consume_threads=1)
        await consumer.start()
        await eventually(lambda: gate.seen == ["m0"], "a listener is busy")
        stopping = asyncio.create_task(consumer.stop())
        await eventually(lambda: len(cluster.broker.changes) == 4, "the others are given back")
        assert not stopping.done()
        gate.open.set()
        await stopping
        assert cluster.broker.acked == [0]
        assert {change.invisible_time for change in cluster.broker.changes} == {1000}


async def test_what_comes_after_the_end_of_a_subscription_is_given_back() -> None:
    """B12."""
    async with pop_cluster() as cluster:
        async with cluster.make_consumer() as consumer:
            await eventually(lambda: len(cluster.broker.waiting) == 1, "a pop waits")
            await consumer.unsubscribe(TOPIC)
            cluster.broker.give(popped(record("a", 0), record("b", 1)))
            await eventually(lambda: len(cluster.broker.changes) == 2, "the messages are given back")
        assert not cluster.seen
        assert not cluster.broker.acked


async def test_a_paused_consumer_pops_nothing_until_it_goes_on() -> None:
    """C6."""
    async with pop_cluster() as cluster, cluster.make_consumer() as consumer:
        await eventually(lambda: len(cluster.broker.waiting) == 1, "a pop waits")
        consumer.suspend()
        cluster.broker.give(popped(record("a", 0)))
        await cluster.sees("a")
        await eventually(lambda: cluster.broker.acked == [0], "what was popped is consumed")
        assert len(cluster.broker.pops) == 1
        consumer.resume()
        await eventually(lambda: len(cluster.broker.pops) == 2, "it goes on")


async def test_a_reset_is_written_to_the_brokers_where_the_offsets_are() -> None:
    """C6, B9."""
    async with pop_cluster() as cluster, cluster.make_consumer() as consumer:
        await consumer.reset_offsets(TOPIC, {queue(1): 42, MessageQueue("other", BROKER, 0): 7})
        assert cluster.broker.committed == {(TOPIC, 1): 42}
        assert consumer.status(TOPIC) == {}


async def test_a_consumer_tells_what_it_pops() -> None:
    """C6."""
    async with pop_cluster() as cluster, cluster.make_consumer() as consumer:
        await eventually(lambda: len(cluster.broker.pops) == 1, "the broker is popped")
        info = await consumer.running_info(False)
        assert list(info.mq_table) == [WHOLE]
        assert info.properties["popInvisibleTimeMs"] == "60000"
