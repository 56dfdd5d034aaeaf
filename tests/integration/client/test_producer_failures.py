"""A producer among brokers and name servers that fail: other brokers, deadlines, breaks, new routes."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
from functools import partial
from itertools import pairwise

import pytest

from cometmq.client.producer.producer import Producer
from cometmq.model.errors import (
    CallTimeoutError,
    CometError,
    RemotingError,
    SendError,
)
from cometmq.model.message import Message
from cometmq.remoting.handler import Answer
from cometmq.wire.codes import ResponseCode
from tests.integration.client.client_kit import (
    HANG_UP,
    SILENT,
    TOPIC,
    FakeBroker,
    FakeCluster,
    queue,
    running_cluster,
)
from tests.waiting import eventually


def producer_of(cluster: FakeCluster, **options: object) -> Producer:
    return Producer("order-service", namesrv=cluster.namesrv, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("reaction", [HANG_UP, 1, 2, 14, 16, 17, 1500])
async def test_a_failed_try_goes_on_at_another_broker(reaction: int | str) -> None:
    """P5."""
    async with running_cluster(brokers=2) as cluster, producer_of(cluster) as producer:
        cluster.brokers[0].always = reaction
        for _ in range(8):
            assert (await producer.send(Message(TOPIC, b"x"))).queue.broker_name == "broker-b"
        assert cluster.brokers[0].received


async def test_a_broker_that_cannot_be_reached_is_passed_over() -> None:
    """P5."""
    async with running_cluster(brokers=2) as cluster, producer_of(cluster) as producer:
        await cluster.brokers[0].stop()
        used = {(await producer.send(Message(TOPIC, b"x"))).queue.broker_name for _ in range(8)}
    assert used == {"broker-b"}


async def test_the_same_message_keeps_its_id_through_all_tries() -> None:
    async with running_cluster(brokers=2) as cluster, producer_of(cluster) as producer:
        for broker in cluster.brokers:
            broker.always = 2
        with pytest.raises(SendError):
            await producer.send(Message(TOPIC, b"x"))
        ids = [received.properties["UNIQ_KEY"] for received in cluster.received]
    assert len(ids) == 3
    assert len(set(ids)) == 1


async def test_the_tries_alternate_between_the_brokers() -> None:
    """P5: never the broker again that has just failed, as long as there is another."""
    async with running_cluster(brokers=3) as cluster, producer_of(cluster, retry_times=5) as producer:
        order: list[str] = []

        def refusal(name: str) -> Answer:
            order.append(name)
            return Answer(ResponseCode.SYSTEM_BUSY)

        for broker in cluster.brokers:
            broker.always = partial(refusal, broker.name)
        with pytest.raises(SendError) as caught:
            await producer.send(Message(TOPIC, b"x"))
    assert len(order) == 6
    assert all(one != next_one for one, next_one in pairwise(order))
    assert len(caught.value.attempts) == 6
    assert "6 tries" in caught.value.message


async def test_with_one_broker_all_tries_go_there() -> None:
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        cluster.brokers[0].reactions.extend([2, 2])
        await producer.send(Message(TOPIC, b"x"))
        assert len(cluster.received) == 3


@pytest.mark.parametrize("code", [13, 26, 29])
async def test_a_refusal_that_would_be_the_same_elsewhere_is_final(code: int) -> None:
    async with running_cluster(brokers=2) as cluster, producer_of(cluster) as producer:
        for broker in cluster.brokers:
            broker.always = code
        with pytest.raises(SendError, match="not today") as caught:
            await producer.send(Message(TOPIC, b"x"))
        assert len(cluster.received) == 1
    assert caught.value.code == code
    assert not caught.value.retriable
    assert not caught.value.maybe_applied


async def test_the_time_out_covers_all_tries() -> None:
    """P5."""
    async with running_cluster(brokers=2) as cluster, producer_of(cluster) as producer:
        for broker in cluster.brokers:
            broker.always = SILENT
        loop = asyncio.get_running_loop()
        begun = loop.time()
        with pytest.raises(SendError, match="in time") as caught:
            await producer.send(Message(TOPIC, b"x"), timeout_s=0.2)
        took = loop.time() - begun
        assert len(cluster.received) == 1
    assert 0.19 < took < 3.0
    assert caught.value.code == 10002
    assert caught.value.maybe_applied
    assert caught.value.retriable


async def test_a_try_may_have_a_limit_of_its_own_so_that_there_is_time_for_another() -> None:
    """P5."""
    async with (
        running_cluster(brokers=2) as cluster,
        producer_of(cluster, max_timeout_per_try_ms=400) as producer,
    ):
        cluster.brokers[0].always = SILENT
        while not cluster.brokers[0].received:  # where the rotation begins is chance
            assert (await producer.send(Message(TOPIC, b"x"))).queue.broker_name == "broker-b"


async def test_a_name_server_that_is_silent_cannot_hold_a_send_beyond_its_time() -> None:
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        cluster.name_servers[0].silent = True
        with pytest.raises(CometError) as caught:
            await producer.send(Message(TOPIC, b"x"), timeout_s=0.1)
    assert isinstance(caught.value, CallTimeoutError)
    assert not caught.value.maybe_applied


async def test_waiting_for_room_counts_against_the_time_out() -> None:
    async with running_cluster() as cluster, producer_of(cluster, max_in_flight_messages=1) as producer:
        broker = cluster.brokers[0]
        broker.always = SILENT
        first = asyncio.create_task(producer.send(Message(TOPIC, b"x")))
        await eventually(lambda: len(broker.held) == 1, "the first message arrived")
        with pytest.raises(CallTimeoutError, match="under way the whole time") as caught:
            await producer.send(Message(TOPIC, b"x"), timeout_s=0.05)
        assert not caught.value.maybe_applied
        broker.answer_held()
        await first


async def test_a_cancelled_send_leaves_its_place_in_line() -> None:
    async with running_cluster() as cluster, producer_of(cluster, max_in_flight_messages=1) as producer:
        broker = cluster.brokers[0]
        broker.always = SILENT
        first, second, third = (asyncio.create_task(producer.send(Message(TOPIC, b"x"))) for _ in range(3))
        await eventually(lambda: len(broker.held) == 1, "the first message arrived")
        second.cancel()
        first.cancel()
        broker.always = 0
        await third
        assert first.cancelled()
        assert second.cancelled()


async def test_an_error_says_if_the_message_may_be_stored_all_the_same() -> None:
    """A retry by the caller can write it twice then."""
    async with running_cluster() as cluster, producer_of(cluster, retry_times=1) as producer:
        cluster.brokers[0].reactions.extend([HANG_UP, 2])
        with pytest.raises(SendError) as caught:
            await producer.send(Message(TOPIC, b"x"))
    assert caught.value.maybe_applied
    assert caught.value.code == 2
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.attempts, copy.maybe_applied, copy.code) == (caught.value.attempts, True, 2)


async def test_an_answer_that_cannot_be_read_is_no_reason_to_send_again() -> None:
    """The message is stored, most likely."""
    async with running_cluster(brokers=2) as cluster, producer_of(cluster) as producer:
        for broker in cluster.brokers:
            broker.always = lambda: Answer(fields={"queueId": "many"})
        with pytest.raises(SendError) as caught:
            await producer.send(Message(TOPIC, b"x"))
        assert len(cluster.received) == 1
    assert caught.value.maybe_applied
    assert not caught.value.retriable


async def test_slow_brokers_get_a_break_if_that_is_switched_on() -> None:
    """P5, latency-based avoidance."""

    async def sends_to_slow(producer: Producer, slow: FakeBroker) -> int:
        before = len(slow.received)
        for _ in range(8):
            await producer.send(Message(TOPIC, b"x"))
        return len(slow.received) - before

    async with (
        running_cluster(brokers=2) as cluster,
        producer_of(cluster, send_latency_fault_enable=True, retry_times=0) as producer,
    ):
        slow = cluster.brokers[0]
        assert await sends_to_slow(producer, slow) == 4
        slow.always = SILENT
        late = asyncio.create_task(producer.send(Message(TOPIC, b"x"), queue=queue(0)))
        await eventually(lambda: len(slow.held) == 1, "the message is with the slow broker")
        loop = asyncio.get_running_loop()
        long_enough = loop.time() + 0.56  # the shortest time that earns a break is 550 ms
        await eventually(lambda: loop.time() > long_enough, "the broker has been slow")
        slow.answer_held()
        await late
        slow.always = 0
        assert await sends_to_slow(producer, slow) == 0


async def test_a_broker_that_failed_gets_a_break_too() -> None:
    async with (
        running_cluster(brokers=2) as cluster,
        producer_of(cluster, send_latency_fault_enable=True) as producer,
    ):
        bad = cluster.brokers[0]
        bad.always = 2
        for _ in range(8):
            await producer.send(Message(TOPIC, b"x"))
        assert len(bad.received) == 1


async def test_when_every_broker_has_a_break_they_are_used_all_the_same() -> None:
    async with (
        running_cluster(brokers=2) as cluster,
        producer_of(cluster, send_latency_fault_enable=True, retry_times=1) as producer,
    ):
        for broker in cluster.brokers:
            broker.always = 2
        with pytest.raises(SendError):
            await producer.send(Message(TOPIC, b"x"))
        for broker in cluster.brokers:
            broker.always = 0
        await producer.send(Message(TOPIC, b"x"))


async def test_the_next_name_server_serves_when_one_fails() -> None:
    """P2."""
    async with running_cluster(name_servers=3) as cluster, producer_of(cluster) as producer:
        await producer.send(Message(TOPIC, b"x"))
        (asked,) = (server for server in cluster.name_servers if server.asked)
        await asked.stop()
        cluster.set_route("second")
        await producer.send(Message("second", b"x"))
        assert sum("second" in server.asked for server in cluster.name_servers) == 1


async def test_a_client_stays_with_its_name_server_while_it_answers() -> None:
    """P2: one at a time."""
    async with running_cluster(name_servers=3) as cluster, producer_of(cluster) as producer:
        for number in range(9):
            cluster.set_route(f"topic-{number}")
            await producer.send(Message(f"topic-{number}", b"x"))
        assert sorted(len(server.asked) for server in cluster.name_servers) == [0, 0, 9]


async def test_a_silent_name_server_leaves_time_for_the_next() -> None:
    """P2."""
    async with (
        running_cluster(name_servers=2) as cluster,
        producer_of(cluster, call_timeout_ms=400) as producer,
    ):
        await producer.send(Message(TOPIC, b"x"))
        (asked,) = (server for server in cluster.name_servers if server.asked)
        asked.silent = True
        cluster.set_route("second")
        await producer.send(Message("second", b"x"))
        assert all(server.asked for server in cluster.name_servers)


async def test_without_any_name_server_a_send_fails_and_says_why() -> None:
    async with running_cluster() as cluster:
        await cluster.name_servers[0].stop()
        async with producer_of(cluster) as producer:
            with pytest.raises(RemotingError, match="cannot connect"):
                await producer.send(Message(TOPIC, b"x"))


async def test_known_routes_serve_on_while_the_name_servers_are_away() -> None:
    """P2."""
    async with (
        running_cluster() as cluster,
        producer_of(cluster, poll_name_server_interval_ms=10) as producer,
    ):
        await producer.send(Message(TOPIC, b"x"))
        await cluster.name_servers[0].stop()
        await asyncio.gather(*(producer.send(Message(TOPIC, b"x")) for _ in range(8)))
        assert len(cluster.brokers[0].received) == 9


async def test_a_refreshed_route_brings_new_brokers_and_drops_old_ones() -> None:
    """P2, P3."""
    async with (
        running_cluster(brokers=2) as cluster,
        producer_of(cluster, poll_name_server_interval_ms=10) as producer,
    ):
        one, other = cluster.brokers
        cluster.set_route(brokers=[one])
        assert (await producer.send(Message(TOPIC, b"x"))).queue.broker_name == one.name
        cluster.set_route(brokers=[other], queues=2)

        instance = producer._instance
        assert instance is not None
        brokers = instance.routes.broker_addresses()
        await eventually(lambda: set(brokers) == {other.name}, "the new route is known")
        assert [each.broker_name for each in await producer.queues(TOPIC)] == [other.name, other.name]
        assert (await producer.send(Message(TOPIC, b"x"))).queue.broker_name == other.name


async def test_a_broker_that_moved_is_found_before_the_next_refresh_is_due() -> None:
    async with running_cluster(brokers=2) as cluster, producer_of(cluster) as producer:
        old, new = cluster.brokers
        cluster.set_route(brokers=[old])
        await producer.send(Message(TOPIC, b"x"))
        await old.stop()
        new.name = old.name
        cluster.set_route(brokers=[new])

        async def arrives() -> bool:
            with contextlib.suppress(CometError):
                await producer.send(Message(TOPIC, b"x"), timeout_s=0.1)
            return bool(new.received)

        assert await eventually(arrives, "a message came to the new broker", seconds=5)


async def test_the_detector_makes_a_broker_reachable_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """P5: a broker that refused is asked something small until it answers."""
    monkeypatch.setattr("cometmq.client.producer.broker_latency._PERIOD_S", 0.01)
    async with (
        running_cluster(brokers=2) as cluster,
        producer_of(
            cluster, send_latency_fault_enable=True, start_detector_enable=True, detect_interval_ms=1
        ) as producer,
    ):
        bad = cluster.brokers[0]
        bad.reactions.append(2)
        while not bad.received:
            await producer.send(Message(TOPIC, b"x"))
        await eventually(lambda: bad.offset_questions > 0, "the detector has asked")
        faults = producer._sender._faults
        assert faults is not None
        await eventually(lambda: faults.is_reachable(bad.name), "it counts as reachable again")
