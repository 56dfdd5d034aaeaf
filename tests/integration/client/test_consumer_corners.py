"""Push consumers and a broker that is in trouble, or makes it."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from cometmq.client.consumer import concurrent
from cometmq.client.consumer.push import PushConsumer, PushEngine
from cometmq.model.message import StoredMessage
from cometmq.wire.codes import RequestCode, ResponseCode
from tests.integration.client.queue_broker_kit import GROUP, RETRIES, TOPIC, queue, queue_cluster
from tests.waiting import eventually


def pulling_engine(consumer: PushConsumer) -> PushEngine:
    """The engine inside, with all that only one that pulls has."""
    engine = consumer._running()
    assert isinstance(engine, PushEngine)
    return engine


async def test_an_offset_that_is_gone_is_corrected_as_the_broker_says() -> None:
    """C3: and the corrected one is what the broker hears."""
    async with queue_cluster() as cluster:
        cluster.broker.first_offset = 100
        cluster.broker.committed[TOPIC, 0] = 7
        cluster.broker.add("a", "b")
        async with cluster.make_consumer():
            await cluster.sees("a", "b")
            await eventually(lambda: cluster.broker.committed[TOPIC, 0] == 102, "the offset is committed")


async def test_an_offset_beyond_the_end_is_corrected_too() -> None:
    """C3."""
    async with queue_cluster() as cluster:
        cluster.broker.committed[TOPIC, 0] = 500
        cluster.broker.add("a")
        async with cluster.make_consumer():
            await eventually(lambda: cluster.broker.committed[TOPIC, 0] == 1, "the offset is corrected")
            cluster.broker.add("b")
            await cluster.sees("b")


@pytest.mark.parametrize(
    "code", [ResponseCode.FLOW_CONTROL, ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR]
)
async def test_a_broker_that_refuses_a_pull_is_asked_again(code: ResponseCode) -> None:
    """C4."""
    async with queue_cluster() as cluster:
        cluster.broker.pull_codes.extend([code] * 6)
        cluster.broker.add("a")
        async with cluster.make_consumer():
            await cluster.sees("a")
        assert not cluster.broker.pull_codes


async def test_a_broker_that_does_not_know_the_subscription_is_told_again() -> None:
    """C1."""
    async with queue_cluster() as cluster:
        async with cluster.make_consumer():
            await eventually(lambda: len(cluster.broker.pulls) == 2, "both queues are pulled")
            told = len(cluster.broker.heartbeats)
            cluster.broker.pull_codes.append(ResponseCode.SUBSCRIPTION_NOT_EXIST)
            cluster.broker.add("a")
            await cluster.sees("a")
            await eventually(lambda: len(cluster.broker.heartbeats) > told, "a heartbeat was sent")
        groups = cluster.broker.heartbeats[-1].consumer_data_set
        assert [each.group_name for each in groups] == [GROUP]
        assert {each.topic for each in groups[0].subscription_data_set} == {TOPIC, RETRIES}


async def test_a_broker_that_comes_back_is_read_again() -> None:
    """C1."""
    async with queue_cluster() as cluster, cluster.make_consumer():
        cluster.broker.add("before")
        await cluster.sees("before")
        await cluster.broker.stop()
        await cluster.broker.restart()
        cluster.broker.held.clear()
        cluster.broker.add("after")
        await cluster.sees("before", "after")


async def test_the_broker_says_which_member_to_read_from_and_a_replica_hears_no_offsets() -> None:
    """B8."""
    async with queue_cluster() as cluster:
        cluster.broker.suggested_broker_id = cluster.replica.suggested_broker_id = 1
        cluster.broker.add("a")
        cluster.replica.add("a", "b")
        async with cluster.make_consumer():
            await cluster.sees("a", "b")
        pulls = [each for each in cluster.replica.pulls if each.topic == TOPIC]
        assert pulls
        assert all(each.sys_flag & 1 == 0 for each in pulls)


async def test_pulls_carry_the_offset_that_is_reached() -> None:
    """C3."""
    async with queue_cluster() as cluster:
        cluster.broker.add("a", "b")
        async with cluster.make_consumer():
            await cluster.sees("a", "b")
            consumer = cluster.consumer
            assert consumer is not None
            await eventually(lambda: consumer.status(TOPIC).get(queue()) == 2, "the offset is known")
            cluster.broker.add("c")
            await cluster.sees("a", "b", "c")
            await eventually(
                lambda: any(each.sys_flag == 3 and each.commit_offset >= 2 for each in cluster.broker.pulls),
                "a pull carries the offset",
            )
        first = cluster.broker.pulls[0]
        assert (first.max_msg_nums, first.suspend_timeout_millis, first.sys_flag) == (32, 15_000, 2)


async def test_a_record_that_cannot_be_read_costs_no_other() -> None:
    """C4."""
    async with queue_cluster() as cluster:
        cluster.broker.add("a", "bad", "b", "c")
        records = cluster.broker.queues[TOPIC, 0]
        records[1] = records[1][:4] + b"\0\0\0\0" + records[1][8:]
        async with cluster.make_consumer():
            await cluster.sees("a", "b", "c")


async def test_a_member_that_the_broker_does_not_list_reads_nothing() -> None:
    """C2."""
    async with queue_cluster() as cluster:
        cluster.broker.add("a")
        consumer = cluster.make_consumer()
        cluster.consumer, cluster.other_members = None, ["10.0.0.1@somebody"]
        async with consumer:
            assert await consumer._running().rebalancer.rebalance()
            assert consumer.assignment() == set()


async def test_queues_are_kept_while_nobody_says_who_is_in_the_group() -> None:
    """C2."""
    async with queue_cluster() as cluster, cluster.make_consumer() as consumer:
        await eventually(lambda: consumer.assignment() == {queue()}, "the queue is assigned")
        cluster.lists_members = False
        assert not await consumer._running().rebalancer.rebalance()
        assert consumer.assignment() == {queue()}
        cluster.lists_members = True
        cluster.other_members = ["0.0.0.0@first"]
        assert await consumer._running().rebalancer.rebalance()
        assert consumer.assignment() == set()


async def test_a_queue_that_is_no_longer_pulled_is_taken_anew() -> None:
    """C2."""
    async with queue_cluster() as cluster, cluster.make_consumer() as consumer:
        table = consumer._running().queues.table
        await eventually(lambda: queue() in table, "the queue is assigned")
        before = table[queue()]
        before.last_pull_s -= 121
        await consumer._running().rebalancer.rebalance()
        assert before.dropped
        assert table[queue()] is not before
        cluster.broker.add("a")
        await cluster.sees("a")


async def test_a_lost_lock_means_that_the_queue_is_taken_anew_from_the_offset_of_the_broker() -> None:
    """C5."""
    async with queue_cluster() as cluster:
        async with cluster.make_consumer(ordered=True) as consumer:
            cluster.broker.add("a")
            await cluster.sees("a")
            locks = pulling_engine(consumer).queues.locks
            assert locks is not None
            cluster.broker.locks_denied = True
            await locks.renew_all()
            assert consumer.assignment() == set()
            cluster.broker.committed[TOPIC, 0] = 3  # whoever has the lock goes on
            cluster.broker.add("b", "c", "d")
            cluster.broker.locks_denied = False
            await cluster.sees("a", "d")
        assert queue() in cluster.broker.unlocked


async def test_a_lock_that_was_not_renewed_stops_consumption_until_it_is() -> None:
    """C5."""
    async with queue_cluster() as cluster, cluster.make_consumer(ordered=True) as consumer:
        cluster.broker.add("a")
        await cluster.sees("a")
        pq = consumer._running().queues.table[queue()]
        pq.locked_at_s -= 31
        assert not pq.lock_held
        cluster.broker.add("b")
        await cluster.sees("a", "b")
        assert pq.lock_held, "the lock was renewed before the message was consumed"


async def test_what_cannot_be_sent_back_goes_to_the_retry_topic_as_a_copy() -> None:
    """C5."""

    def fails(message: StoredMessage) -> None:
        raise ValueError("no")

    async with queue_cluster() as cluster:
        cluster.broker.send_back_codes.append(ResponseCode.SYSTEM_ERROR)
        cluster.broker.add("a")
        async with cluster.make_consumer(fails, max_reconsume_times=5):
            await eventually(lambda: bool(cluster.broker.copies), "a copy was sent")
            await eventually(lambda: cluster.broker.committed.get((TOPIC, 0)) == 1, "the offset moves on")
        (back,) = cluster.broker.sent_back
        assert (back.group, back.delay_level, back.max_reconsume_times, back.offset) == (GROUP, 0, 5, 0)
        header, body = cluster.broker.copies[0]
        assert (header.topic, header.reconsume_times, header.max_reconsume_times) == (RETRIES, 1, 5)
        assert (header.producer_group, body) == ("CLIENT_INNER_PRODUCER", b"a")
        assert f"RETRY_TOPIC\x01{TOPIC}" in (header.properties or "")
        assert "DELAY\x013" in (header.properties or "")


async def test_what_nobody_takes_back_is_tried_again_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """C5."""
    monkeypatch.setattr(concurrent, "TRY_AGAIN_HERE_S", 0.02)
    attempts: list[int] = []

    def fails_once(message: StoredMessage) -> None:
        attempts.append(message.reconsume_times)
        if len(attempts) == 1:
            raise ValueError("no")

    async with queue_cluster() as cluster:
        cluster.broker.send_back_codes.append(ResponseCode.SYSTEM_ERROR)
        cluster.broker.send_codes.append(ResponseCode.SYSTEM_ERROR)
        cluster.broker.add("a")
        async with cluster.make_consumer(fails_once):
            await eventually(lambda: cluster.broker.committed.get((TOPIC, 0)) == 1, "the message is done")
    assert attempts == [0, 1]


async def test_a_listener_that_takes_too_long_loses_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """C5."""
    begun, free = threading.Event(), threading.Event()

    def hangs(message: StoredMessage) -> None:
        begun.set()
        free.wait()

    async with queue_cluster() as cluster:
        cluster.broker.add("a")
        async with cluster.make_consumer(hangs, consume_timeout_min=1) as consumer:
            await eventually(begun.is_set, "the listener has the message")
            consumption = pulling_engine(consumer).consumption
            consumption.send_back_expired()
            assert cluster.broker.sent_back == []
            later = SimpleNamespace(monotonic=lambda: time.monotonic() + 61)
            monkeypatch.setattr(concurrent, "time", later)
            consumption.send_back_expired()
            await eventually(lambda: cluster.broker.committed.get((TOPIC, 0)) == 1, "the queue goes on")
            assert [each.delay_level for each in cluster.broker.sent_back] == [3]
            free.set()
        assert len(cluster.broker.sent_back) == 1


async def test_limits_for_a_topic_are_shared_by_its_queues() -> None:
    """C4."""
    async with queue_cluster(queues=4) as cluster:
        consumer = cluster.make_consumer(pull_threshold_for_topic=100, pull_threshold_size_for_topic_mib=2)
        async with consumer:
            await eventually(lambda: len(consumer._running().queues.table) == 5, "all queues are assigned")
            thresholds = pulling_engine(consumer).thresholds
            await eventually(lambda: thresholds.count == 20, "each queue has its part")
            assert thresholds.size_bytes == 1024 * 1024


async def test_an_orderly_stop_writes_the_offsets_and_gives_the_locks_back() -> None:
    """C5."""
    async with queue_cluster(queues=2) as cluster:
        consumer = cluster.make_consumer(ordered=True, persist_consumer_offset_interval_ms=60_000)
        async with consumer:
            await eventually(lambda: len(consumer._running().queues.table) == 3, "all queues are assigned")
            cluster.broker.add("a", "b")
            await cluster.sees("a", "b")
        assert cluster.broker.committed[TOPIC, 0] == 2
        assert {queue(0), queue(1), queue(0, RETRIES)} <= set(cluster.broker.unlocked)


@pytest.mark.parametrize("unanswered", [RequestCode.LOCK_BATCH_MQ, RequestCode.QUERY_CONSUMER_OFFSET])
async def test_a_stop_gives_back_the_lock_of_a_queue_that_was_not_read_yet(unanswered: RequestCode) -> None:
    """C5: else nobody reads the queue until the lock expires."""
    async with queue_cluster() as cluster:
        cluster.broker.unanswered.add(unanswered)
        async with cluster.make_consumer(ordered=True) as consumer:
            await eventually(lambda: cluster.broker.asked, "a queue is being taken")
            assert consumer.assignment() == set()
        await eventually(lambda: queue() in cluster.broker.unlocked, "the queue is unlocked")


async def test_a_suspended_consumer_takes_nothing_until_it_goes_on() -> None:
    """C1: also not the answer to a pull that was under way."""
    async with queue_cluster() as cluster, cluster.make_consumer() as consumer:
        await eventually(lambda: len(cluster.broker.held) == 2, "both queues are pulled")
        consumer.suspend()
        cluster.broker.add("a")
        await pulling_engine(consumer).offsets.read(
            queue()
        )  # comes behind the answer, over the same connection
        assert cluster.bodies == []
        consumer.resume()
        await cluster.sees("a")
