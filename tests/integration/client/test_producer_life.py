"""The life of a producer: start, heartbeats, groups, stop, threads and forks."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from cometmq.client.blocking import producer as blocking_producer
from cometmq.client.blocking.loop import background
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.sender import SendReceipt
from cometmq.client.settings import ServiceState
from cometmq.model.errors import (
    CallTimeoutError,
    ClientError,
    CometError,
    FlushError,
    GroupTakenError,
    SendError,
    SettingsError,
    StateError,
    TooManyRequestsError,
)
from cometmq.model.message import Message
from cometmq.wire.frame.framing import ROCKETMQ
from tests.integration.client.client_kit import SILENT, TOPIC, FakeCluster, running_cluster
from tests.waiting import eventually


def producer_of(cluster: FakeCluster, group: str = "order-service", **options: object) -> Producer:
    return Producer(group, namesrv=cluster.namesrv, **options)  # type: ignore[arg-type]


async def test_a_producer_is_used_between_start_and_stop() -> None:
    """P1, service states."""
    async with running_cluster() as cluster:
        producer = producer_of(cluster)
        with pytest.raises(StateError, match="not started"):
            await producer.send(Message(TOPIC, b"x"))
        await producer.start()
        assert producer.state is ServiceState.RUNNING
        with pytest.raises(StateError, match="is running"):
            await producer.start()
        await producer.send(Message(TOPIC, b"x"))
        await producer.stop()
        await producer.stop()
        with pytest.raises(StateError, match="stopped"):
            await producer.send(Message(TOPIC, b"x"))
        with pytest.raises(StateError, match="make a new one"):
            await producer.start()


@pytest.mark.parametrize("group", ["", " ", "a b", "x" * 121, "DEFAULT_PRODUCER", "ä"])
def test_a_group_that_no_broker_takes_is_refused(group: str) -> None:
    """P1."""
    with pytest.raises(ClientError):
        Producer(group, namesrv="127.0.0.1:9876")


async def test_without_a_name_server_a_producer_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("COMETMQ_NAMESRV", "NAMESRV_ADDR", "COMETMQ_NAMESRV_DOMAIN"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(SettingsError, match="pass namesrv=") as caught:
        await Producer("g").start()
    assert caught.value.code == 10004
    with pytest.raises(SettingsError, match="expected host:port"):
        await Producer("g", namesrv="nonsense:port").start()


async def test_the_environment_names_the_name_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_cluster() as cluster:
        monkeypatch.setenv("NAMESRV_ADDR", f"http://{cluster.namesrv}")
        async with Producer("g") as producer:
            await producer.send(Message(TOPIC, b"x"))
        assert len(cluster.brokers[0].received) == 1


async def test_a_group_taken_twice_is_refused() -> None:
    """P1."""
    async with (
        running_cluster() as cluster,
        producer_of(cluster, instance_name="shared") as producer,
    ):
        second = producer_of(cluster, instance_name="shared")
        with pytest.raises(GroupTakenError, match="has a producer of group order-service already"):
            await second.start()
        assert second.state is ServiceState.START_FAILED
        await second.stop()
        await producer.send(Message(TOPIC, b"x"))


async def test_producers_with_one_instance_name_share_one_client() -> None:
    """P1: one client instance per client id, one connection, one heartbeat for both groups."""
    async with running_cluster() as cluster:
        broker = cluster.brokers[0]
        one = producer_of(cluster, "one", instance_name="shared")
        other = producer_of(cluster, "other", instance_name="shared")
        async with one, other:
            assert one.client_id == other.client_id
            assert one.client_id.endswith("@shared")
            await one.send(Message(TOPIC, b"x"))
            await other.send(Message(TOPIC, b"x"))
            assert len(broker.server.connections) == 1
            await eventually(lambda: len(broker.heartbeats) > 0, "a heartbeat came")
            groups = {each.group_name for each in broker.heartbeats[-1].producer_data_set}
            assert groups == {"one", "other"}
            await other.stop()
            await one.send(Message(TOPIC, b"x"))
        assert [each.producer_group for each in broker.left] == ["other", "one"]


async def test_producers_of_one_group_are_two_clients_by_default() -> None:
    async with running_cluster() as cluster, producer_of(cluster) as one, producer_of(cluster) as other:
        assert one.client_id != other.client_id
        assert f"@{os.getpid()}#" in one.client_id


async def test_one_client_id_has_one_set_of_settings() -> None:
    async with running_cluster() as cluster, producer_of(cluster, instance_name="shared"):
        with pytest.raises(SettingsError, match="runs with other settings"):
            await producer_of(cluster, "other", instance_name="shared", call_timeout_ms=1).start()


async def test_a_broker_hears_of_the_producer_when_it_is_connected_and_from_then_on() -> None:
    """P3."""
    async with (
        running_cluster(brokers=2) as cluster,
        producer_of(cluster, heartbeat_broker_interval_ms=20) as producer,
    ):
        await producer.send(Message(TOPIC, b"x"))
        for broker in cluster.brokers:
            await eventually(partial(len, broker.heartbeats), "heartbeats come", lambda count: count >= 3)
            heartbeat = broker.heartbeats[-1]
            assert heartbeat.client_id == producer.client_id
            assert [each.group_name for each in heartbeat.producer_data_set] == ["order-service"]
            assert heartbeat.consumer_data_set == ()


async def test_short_heartbeats_carry_the_fingerprint_of_the_full_one() -> None:
    async with (
        running_cluster() as cluster,
        producer_of(cluster, heartbeat_broker_interval_ms=20, use_heartbeat_v2=True) as producer,
    ):
        await producer.send(Message(TOPIC, b"x"))
        broker = cluster.brokers[0]
        await eventually(lambda: len(broker.heartbeats) >= 3, "heartbeats come")
        full, *short = broker.heartbeats
        assert not full.without_sub
        assert full.heartbeat_fingerprint != 0
        assert {each.heartbeat_fingerprint for each in short} == {full.heartbeat_fingerprint}
        assert all(each.without_sub for each in short)


async def test_a_broker_that_comes_back_hears_of_the_producer_again() -> None:
    """P3."""
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        broker = cluster.brokers[0]
        await producer.send(Message(TOPIC, b"x"))
        await eventually(lambda: len(broker.heartbeats) == 1, "the first heartbeat came")
        await broker.stop()
        await broker.restart()
        await producer.send(Message(TOPIC, b"x"))
        await eventually(lambda: len(broker.heartbeats) == 2, "a heartbeat came on the new connection")


async def test_a_stop_tells_the_brokers_and_closes_the_connections() -> None:
    """P1."""
    async with running_cluster() as cluster:
        broker = cluster.brokers[0]
        async with producer_of(cluster) as producer:
            await producer.send(Message(TOPIC, b"x"))
            client_id = producer.client_id
        (left,) = broker.left
        assert (left.client_id, left.producer_group) == (client_id, "order-service")
        await eventually(lambda: not broker.server.connections, "the connection is closed")


async def test_a_stop_waits_for_what_is_under_way_and_takes_nothing_new() -> None:
    async with running_cluster() as cluster:
        broker = cluster.brokers[0]
        broker.always = SILENT
        producer = producer_of(cluster)
        await producer.start()
        sending = asyncio.create_task(producer.send(Message(TOPIC, b"x")))
        await eventually(lambda: len(broker.held) == 1, "the message arrived")
        stopping = asyncio.create_task(producer.stop())
        await eventually(lambda: producer.state is ServiceState.STOPPED, "the stop began")
        with pytest.raises(StateError):
            await producer.send(Message(TOPIC, b"y"))
        assert not stopping.done()
        broker.answer_held()
        assert (await sending).queue_offset == 1
        await stopping


async def test_a_stop_also_waits_for_sends_that_are_still_looking_for_their_route() -> None:
    async with running_cluster() as cluster:
        server = cluster.name_servers[0]
        server.slow = asyncio.Event()
        producer = producer_of(cluster)
        await producer.start()
        sending = producer.send_async(Message(TOPIC, b"x"))
        await eventually(lambda: bool(server.asked), "the route is asked for")
        stopping = asyncio.create_task(producer.stop())
        await eventually(lambda: producer.state is ServiceState.STOPPED, "the stop began")
        server.slow.set()
        assert (await sending).queue_offset == 1
        await stopping


async def test_a_stop_does_not_wait_longer_than_the_sends_that_are_under_way() -> None:
    async with running_cluster() as cluster:
        broker = cluster.brokers[0]
        broker.always = SILENT
        async with producer_of(cluster) as producer:
            sending = asyncio.create_task(producer.send(Message(TOPIC, b"x"), timeout_s=0.1))
            await eventually(lambda: len(broker.held) == 1, "the message arrived")
        with pytest.raises(SendError, match="in time"):
            await sending


async def test_both_header_encodings_work() -> None:
    async with running_cluster() as cluster, producer_of(cluster, serialize_type=ROCKETMQ) as producer:
        receipt = await producer.send(Message(TOPIC, b"x"))
        assert receipt.msg_id == cluster.received[0].properties["UNIQ_KEY"]


# The blocking face.


async def in_thread(work: Callable[[], object]) -> object:
    return await asyncio.to_thread(work)


async def test_a_blocking_producer_serves_many_threads() -> None:
    """P4, synchronously."""
    async with running_cluster() as cluster:

        def work() -> list[SendReceipt]:
            with (
                blocking_producer.Producer("order-service", namesrv=cluster.namesrv) as producer,
                ThreadPoolExecutor(16) as threads,
            ):
                return list(threads.map(lambda _: producer.send(Message(TOPIC, b"x")), range(400)))

        receipts = await asyncio.to_thread(work)
        assert len({receipt.msg_id for receipt in receipts}) == 400
        assert len(cluster.received) == 400


async def test_a_blocking_producer_sends_beside_with_future_and_callback() -> None:
    """P4, asynchronously."""
    async with running_cluster() as cluster:
        outcomes: list[SendReceipt | CometError] = []
        threads: set[str] = set()

        def note(outcome: SendReceipt | CometError) -> None:
            threads.add(threading.current_thread().name)
            outcomes.append(outcome)

        def work() -> list[SendReceipt]:
            with blocking_producer.Producer("g", namesrv=cluster.namesrv, retry_times=0) as producer:
                receipts = [producer.send_async(Message(TOPIC, b"x"), note).result() for _ in range(3)]
                cluster.brokers[0].always = 13
                with pytest.raises(SendError):
                    producer.send_async(Message(TOPIC, b"x"), note).result()
            return receipts

        receipts = await asyncio.to_thread(work)
        assert [each for each in outcomes if isinstance(each, SendReceipt)] == receipts
        assert len(outcomes) == 4
        assert all(name.startswith("cometmq-callback") for name in threads)


async def test_a_callback_may_send_again() -> None:
    async with running_cluster() as cluster:

        def work() -> None:
            with blocking_producer.Producer("g", namesrv=cluster.namesrv) as producer:
                again = threading.Event()

                def send_again(outcome: object) -> None:
                    producer.send(Message(TOPIC, b"second"))
                    again.set()

                producer.send_async(Message(TOPIC, b"first"), send_again)
                assert again.wait(5)

        await asyncio.to_thread(work)
        assert [received.body for received in cluster.received] == [b"first", b"second"]


async def test_sends_beside_wait_for_room_and_give_up_at_their_time_out() -> None:
    async with running_cluster() as cluster:
        cluster.brokers[0].always = SILENT

        def work() -> None:
            with blocking_producer.Producer(
                "g", namesrv=cluster.namesrv, max_in_flight_messages=2, send_timeout_ms=300, retry_times=0
            ) as producer:
                futures = [producer.send_async(Message(TOPIC, b"x")) for _ in range(2)]
                with pytest.raises(TooManyRequestsError, match="2 messages were under way"):
                    producer.send_async(Message(TOPIC, b"x"), timeout_s=0.05)
                for future in futures:
                    assert isinstance(future.exception(), SendError)

        await asyncio.to_thread(work)


async def test_a_blocking_flush_waits_for_answers_and_callbacks() -> None:
    async with running_cluster() as cluster:
        cluster.brokers[0].reactions.extend([0, 13, 0])

        def work() -> None:
            seen: list[object] = []
            refused: list[Exception] = []
            may_end = threading.Event()
            with blocking_producer.Producer("g", namesrv=cluster.namesrv, retry_times=0) as producer:
                producer.flush()
                producer.send_async(Message(TOPIC, b"x"))
                producer.send_async(Message(TOPIC, b"x"))
                with pytest.raises(FlushError, match="1 of the messages"):
                    producer.flush(timeout_s=30)

                def callback(outcome: object) -> None:
                    try:
                        producer.flush()
                    except StateError as error:
                        refused.append(error)
                    may_end.wait(30)
                    seen.append(outcome)

                producer.send_async(Message(TOPIC, b"x"), callback)
                with pytest.raises(CallTimeoutError, match="1 messages are still in flight"):
                    producer.flush(timeout_s=0.1)
                may_end.set()
                producer.flush()
                assert len(seen) == len(refused) == 1

        await asyncio.to_thread(work)


async def test_the_other_ways_to_send_block_too() -> None:
    async with running_cluster() as cluster:

        def work() -> None:
            with blocking_producer.Producer("g", namesrv=cluster.namesrv) as producer:
                assert len(producer.send_batch([Message(TOPIC, b"x"), Message(TOPIC, b"y")])) == 2
                producer.send_oneway(Message(TOPIC, b"z"))
                assert len(producer.queues(TOPIC)) == 4
                assert producer.group == "g"
                assert producer.state is ServiceState.RUNNING
                assert "@" in producer.client_id

        await asyncio.to_thread(work)
        await eventually(lambda: len(cluster.received) == 2, "batch and message arrived")


async def test_waiting_on_the_background_loop_itself_is_refused() -> None:
    async with running_cluster() as cluster:
        producer = blocking_producer.Producer("g", namesrv=cluster.namesrv)

        async def inside() -> None:
            producer.start()

        with pytest.raises(StateError, match=r"use cometmq\.aio there"):
            await asyncio.to_thread(lambda: background().run(inside()))


_FORKING = """
import os, sys, warnings
warnings.simplefilter("ignore")
from cometmq.client.blocking.producer import Producer
from cometmq.model.errors import StateError
from cometmq.model.message import Message

namesrv = sys.argv[1]
producer = Producer("parent", namesrv=namesrv)
producer.start()
producer.send(Message("orders", b"parent"))
child = os.fork()
if child == 0:
    try:
        producer.send(Message("orders", b"forbidden"))
    except StateError as error:
        assert "forked" in str(error), error
        with Producer("child", namesrv=namesrv) as own:
            own.send(Message("orders", b"child"))
        os._exit(0)
    os._exit(1)
_, status = os.waitpid(child, 0)
producer.send(Message("orders", b"parent again"))
producer.stop()
sys.exit(os.waitstatus_to_exitcode(status))
"""


async def test_a_forked_child_cannot_use_its_parents_producer_and_can_make_its_own() -> None:
    async with running_cluster() as cluster:
        code = await in_thread(
            lambda: (
                subprocess.run(
                    [sys.executable, "-c", _FORKING, cluster.namesrv], timeout=30, check=False
                ).returncode
            )
        )
        assert code == 0
        bodies = sorted(received.body for received in cluster.received)
    assert bodies == [b"child", b"parent", b"parent again"]


_FORGETFUL = """
import sys
from cometmq.client.blocking.producer import Producer
from cometmq.model.message import Message

producer = Producer("g", namesrv=sys.argv[1])
producer.start()
producer.send(Message("orders", b"x"))
"""

_INTERRUPTIBLE = """
import sys
sys.stderr.close()
"""


async def test_a_program_that_forgets_to_stop_ends_all_the_same() -> None:
    async with running_cluster() as cluster:
        done = await asyncio.to_thread(
            lambda: subprocess.run(
                [sys.executable, "-c", _FORGETFUL, cluster.namesrv],
                timeout=30,
                check=False,
                capture_output=True,
            )
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


async def test_an_interrupt_ends_a_blocking_send() -> None:
    async with running_cluster() as cluster:
        cluster.brokers[0].always = SILENT
        script = _INTERRUPTIBLE + _FORGETFUL.replace('b"x")', 'b"x"), timeout_s=60')
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, cluster.namesrv)
        await eventually(lambda: len(cluster.received) == 1, "the message arrived")
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(10):
            assert await process.wait() != 0
