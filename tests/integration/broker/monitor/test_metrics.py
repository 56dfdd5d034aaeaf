"""What `/metrics`, `/health` and `/ready` of a broker say, against what was sent and consumed."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Final

import msgspec
import pytest

from cometmq.broker.broker import Broker
from cometmq.broker.monitor import metrics as lag_metrics
from cometmq.model.errors import CometError
from cometmq.ports.disk import DiskUsage
from cometmq.remoting.metrics import exporter as prometheus
from cometmq.store.message_store import MessageStore
from cometmq.store.recovery.recovery import Recovered
from cometmq.store.status import Trouble
from cometmq.wire.bodies.heartbeat import HeartbeatData, ProducerData, encode_heartbeat
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.offset import UpdateConsumerOffsetRequest
from cometmq.wire.headers.session import HeartbeatRequest
from cometmq.wire.headers.topic import CreateTopicRequest
from tests.integration.broker.broker_kit import ID, BrokerKit, running_broker
from tests.integration.client.consumer_kit import Visitor, tags
from tests.integration.remoting.status_kit import PROMETHEUS, Samples, ask, scrape, value
from tests.waiting import eventually

APACHE: Final = {
    "rocketmq_broker_permission": "",
    "rocketmq_consumer_connections": "consume_mode consumer_group is_system language protocol_type version",
    "rocketmq_consumer_group_create_execution_time_milliseconds_bucket": "invocation_status le",
    "rocketmq_consumer_group_number": "",
    "rocketmq_consumer_inflight_messages": "consumer_group is_retry is_system topic",
    "rocketmq_consumer_lag_latency_milliseconds": "consumer_group is_retry is_system topic",
    "rocketmq_consumer_lag_messages": "consumer_group is_retry is_system topic",
    "rocketmq_consumer_queueing_latency_milliseconds": "consumer_group is_retry is_system topic",
    "rocketmq_consumer_ready_messages": "consumer_group is_retry is_system topic",
    "rocketmq_message_size_bucket": "is_system message_type topic le",
    "rocketmq_messages_in_total": "is_system message_type topic",
    "rocketmq_messages_out_total": "consumer_group is_system topic",
    "rocketmq_pop_revive_lag_milliseconds": "queue_id",
    "rocketmq_pop_revive_latency_milliseconds": "queue_id",
    "rocketmq_processor_watermark": "processor",
    "rocketmq_producer_connections": "language protocol_type version",
    "rocketmq_rpc_latency_milliseconds_bucket": (
        "is_long_polling protocol_type request_code response_code result le"
    ),
    "rocketmq_storage_dispatch_behind_bytes": "storage_medium storage_type",
    "rocketmq_storage_flush_behind_bytes": "storage_medium storage_type",
    "rocketmq_storage_message_reserve_time_milliseconds": "storage_medium storage_type",
    "rocketmq_storage_size_bytes": "storage_medium storage_type",
    "rocketmq_throughput_in_total": "is_system message_type topic",
    "rocketmq_throughput_out_total": "consumer_group is_system topic",
    "rocketmq_timer_dequeue_lag": "storage_medium storage_type",
    "rocketmq_timer_dequeue_latency_milliseconds": "storage_medium storage_type",
    "rocketmq_timer_enqueue_lag": "storage_medium storage_type",
    "rocketmq_timer_enqueue_latency_milliseconds": "storage_medium storage_type",
    "rocketmq_timer_message_snapshot": "storage_medium storage_type timer_bound_s",
    "rocketmq_topic_create_execution_time_milliseconds_bucket": "invocation_status is_system le",
    "rocketmq_topic_number": "",
}
"""The labels of metrics, without those of the broker."""


def port_of(broker: Broker) -> int:
    assert broker.exporter is not None
    return broker.exporter.port


async def scraped(kit: BrokerKit) -> Samples:
    return await scrape(port_of(kit.broker))


async def commit(kit: BrokerKit, queue_id: int, offset: int) -> None:
    header = UpdateConsumerOffsetRequest(
        consumer_group="billing", topic="Orders", queue_id=queue_id, commit_offset=offset
    )
    await kit.ok(RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def make_topic(kit: BrokerKit, name: str) -> None:
    header = CreateTopicRequest(
        topic=name,
        default_topic="TBW102",
        read_queue_nums=4,
        write_queue_nums=4,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        order=False,
    )
    await kit.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def test_what_came_in_is_counted_by_topic_and_kind() -> None:
    """B13: single messages, a batch and delayed ones, under RocketMQ's names."""
    async with running_broker(settings=PROMETHEUS) as kit:
        for _ in range(3):
            await kit.send()
        await kit.send_batch("Orders", [(b"one", {"UNIQ_KEY": ID}), (b"two", {"UNIQ_KEY": ID})])
        await kit.send(properties={"UNIQ_KEY": ID, "DELAY": "5"})
        await kit.embedded.create_topic("Steps", attributes={"message.type": "FIFO"})
        await kit.send("Steps")
        samples = await scraped(kit)
        node = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "embedded"}
        orders = {**node, "topic": "Orders", "is_system": "false"}
        normal, delayed = ({**orders, "message_type": kind} for kind in ("normal", "delay"))
        fifo = {**node, "topic": "Steps", "message_type": "fifo"}
        assert value(samples, "rocketmq_messages_in_total", normal) == 5
        assert value(samples, "rocketmq_messages_in_total", delayed) == 1
        assert value(samples, "rocketmq_messages_in_total", fifo) == 1
        sizes = [
            value(samples, "rocketmq_throughput_in_total", each)
            + value(samples, "rocketmq_message_size_sum", each)
            for each in (normal, delayed, fifo)
        ]
        assert sum(sizes) == 2 * kit.broker.context.store.log.max_offset
        assert value(samples, "rocketmq_message_size_bucket", {**normal, "le": "1024.0"}) == 5
        assert value(samples, "rocketmq_storage_size_bytes") == kit.broker.context.store.log.max_offset
        assert value(samples, "rocketmq_storage_dispatch_behind_bytes") == 0
        assert value(samples, "cometmq_append_latency_seconds_count") == 6
        assert value(samples, "rocketmq_topic_number") == len(kit.broker.context.topics.table)
        sends = {"request_code": "send_message_v2", "response_code": "success", "result": "success"}
        assert value(samples, "rocketmq_rpc_latency_milliseconds_count", sends) == 5
        assert value(samples, "cometmq_requests_total", {"code": "SEND_MESSAGE_V2"}) == 5


async def test_what_went_out_and_what_is_left_is_counted_by_group_and_queue() -> None:
    """B13: messages given, lag, what is under way and how old it is."""
    async with running_broker(settings=PROMETHEUS) as kit:
        for queue_id in (0, 0, 0, 1):
            await kit.send(queue_id=queue_id)
        visitor = Visitor(kit.embedded.address)
        try:
            await visitor.heartbeat(tags("Orders"), group="billing")
            pulled = await visitor.pull(topic="Orders", group="billing", max_msg_nums=2)
            assert pulled.code == 0
            await commit(kit, 0, 1)
            await commit(kit, 1, 1)
            samples = await scraped(kit)
        finally:
            await visitor.client.stop()
        billing = {"consumer_group": "billing", "topic": "Orders", "is_retry": "false", "is_system": "false"}
        assert value(samples, "rocketmq_messages_out_total", billing) == 2
        assert value(samples, "rocketmq_throughput_out_total", billing) == len(pulled.body)
        assert value(samples, "rocketmq_consumer_lag_messages", billing) == 2
        assert value(samples, "rocketmq_consumer_inflight_messages", billing) == 1
        assert value(samples, "rocketmq_consumer_ready_messages", billing) == 1
        assert 0 < value(samples, "rocketmq_consumer_lag_latency_milliseconds", billing) < 600_000
        assert 0 < value(samples, "rocketmq_consumer_queueing_latency_milliseconds", billing) < 600_000
        lags = [
            value(samples, "cometmq_consumer_queue_lag_messages", {**billing, "queue_id": queue_id})
            for queue_id in ("0", "1")
        ]
        assert lags == [2, 0]
        connected = {"consumer_group": "billing", "consume_mode": "push", "protocol_type": "remoting"}
        assert value(samples, "rocketmq_consumer_connections", connected) == 1


async def test_names_and_labels_are_those_of_rocketmq() -> None:
    """B13: what a broker of RocketMQ 5.3.3 exported after the same requests."""
    async with running_broker(settings=PROMETHEUS) as kit:
        await kit.send()
        await kit.send()
        visitor = Visitor(kit.embedded.address)
        try:
            producers = HeartbeatData("shop", (ProducerData("shop"),))
            body = encode_heartbeat(producers)
            assert (await visitor.ask(RequestCode.HEART_BEAT, HeartbeatRequest(), body=body)).code == 0
            await visitor.heartbeat(tags("Orders"), group="billing")
            assert (await visitor.pull(topic="Orders", group="billing")).code == 0
            await commit(kit, 0, 1)
            await make_topic(kit, "Bills")
            await kit.ok(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, b'{"groupName":"audit"}')
            samples = await scraped(kit)
        finally:
            await visitor.client.stop()
    ours: dict[str, set[str]] = {}
    for name, labels in samples:
        ours.setdefault(name, set()).update(label for label, _ in labels)
    for name, text in APACHE.items():
        assert ours.get(name, set()) >= {"cluster", "node_type", "node_id", *text.split()}, name


async def test_a_pull_that_was_held_counts_with_the_time_that_it_waited() -> None:
    """B13: and is told apart from those that were answered at once."""
    async with running_broker(settings=PROMETHEUS) as kit:
        await kit.send()
        visitor = Visitor(kit.embedded.address)
        try:
            await visitor.heartbeat(tags("Orders"), group="billing")
            pulling = asyncio.ensure_future(visitor.pull(1, topic="Orders", group="billing", flag=2))
            await eventually(lambda: kit.broker.context.held_pulls.count == 1, "the pull is held")
            began = time.perf_counter()
            await kit.send()
            assert (await pulling).code == 0
            samples = await scraped(kit)
        finally:
            await visitor.client.stop()
        pulls = {"request_code": "pull_message", "response_code": "success"}
        held = {**pulls, "is_long_polling": "true"}
        assert value(samples, "rocketmq_rpc_latency_milliseconds_count", held) == 1
        assert value(samples, "rocketmq_rpc_latency_milliseconds_sum", held) > 0
        assert value(samples, "cometmq_request_seconds_total", {"code": "PULL_MESSAGE"}) < (
            time.perf_counter() - began
        )


async def test_making_topics_and_groups_is_timed_by_how_it_ended() -> None:
    """B13: what a request of an administrator took, in milliseconds."""
    async with running_broker(settings=PROMETHEUS) as kit:
        for name in ("Bills", "Bills", "not a name"):
            await make_topic(kit, name)
        for group in (b"audit", b"not a name"):
            body = b'{"groupName":"%b"}' % group
            await kit.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
        samples = await scraped(kit)
        succeeded, failed = ({"invocation_status": status} for status in ("success", "failure"))
        topics = "rocketmq_topic_create_execution_time_milliseconds"
        assert value(samples, f"{topics}_count", {**succeeded, "is_system": "false"}) == 2
        assert value(samples, f"{topics}_count", {**failed, "is_system": "false"}) == 1
        groups = "rocketmq_consumer_group_create_execution_time_milliseconds"
        assert value(samples, f"{groups}_count", succeeded) == 1
        assert value(samples, f"{groups}_count", failed) == 1
        assert value(samples, f"{groups}_bucket", {**failed, "le": "5000.0"}) == 1


async def test_what_a_processor_waits_with_is_counted() -> None:
    """B13: nothing while nothing waits, under the names of RocketMQ's processors."""
    async with running_broker(settings=PROMETHEUS) as kit:
        await kit.send()
        idle = await scraped(kit)
        names = "send pull lite_pull ack query_message heartbeat client_manager consumer_manager"
        for name in (*names.split(), "transaction", "reply", "admin"):
            assert value(idle, "rocketmq_processor_watermark", {"processor": name}) == 0
        kit.broker.server.metrics.of(RequestCode.PULL_MESSAGE).running = 2
        kit.broker.fast_server.metrics.of(RequestCode.GET_BROKER_CONFIG).running = 1
        kit.broker.context.sender.pressure.waits(3)
        busy = await scraped(kit)
        counts = {
            name: value(busy, "rocketmq_processor_watermark", {"processor": name})
            for name in ("pull", "admin", "send")
        }
        assert counts == {"pull": 2, "admin": 1, "send": 3}


async def test_a_message_that_is_given_up_is_counted_for_its_group() -> None:
    """B7, B13."""
    async with running_broker(settings=PROMETHEUS) as kit:
        await kit.send()
        assert (await kit.send_back(0, delay_level=-1)).code == 0
        samples = await scraped(kit)
        given_up = {"consumer_group": "billing", "topic": "Orders"}
        assert value(samples, "rocketmq_send_to_dlq_messages_total", given_up) == 1


async def test_series_beyond_a_limit_are_left_out_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """B13: the lag by queue, how old messages are, and any other metric have limits of their own."""
    monkeypatch.setattr(lag_metrics, "MOST_QUEUES", 2)
    monkeypatch.setattr(lag_metrics, "MOST_TIMED", 0)
    settings = {**PROMETHEUS, "metricsOtelCardinalityLimit": "1"}
    async with running_broker(settings=settings) as kit:
        kit.broker.context.groups.find("billing")
        for queue_id in range(4):
            await kit.send(queue_id=queue_id)
            await commit(kit, queue_id, 0)
        await kit.send("Bills")
        samples = await scraped(kit)
        left_out = {
            dict(labels)["metric"]: amount
            for (name, labels), amount in samples.items()
            if name == "cometmq_left_out_series"
        }
    assert left_out == {
        "rocketmq_rpc_latency_milliseconds": 1,
        "cometmq_requests": 1,
        "cometmq_oneway_requests": 1,
        "cometmq_request_seconds": 1,
        "cometmq_request_longest_seconds": 1,
        "rocketmq_processor_watermark": 10,
        "rocketmq_messages_in": 1,
        "rocketmq_throughput_in": 1,
        "rocketmq_message_size": 1,
        "rocketmq_consumer_lag_latency_milliseconds": 1,
        "rocketmq_consumer_queueing_latency_milliseconds": 1,
        "cometmq_consumer_queue_lag_messages": 3,
        "rocketmq_timer_message_snapshot": 7,
        "rocketmq_pop_revive_in_message": 1,
        "rocketmq_pop_revive_out_message": 1,
        "rocketmq_pop_revive_lag_milliseconds": 7,
        "rocketmq_pop_revive_latency_milliseconds": 7,
    }


async def test_flushes_and_delays_of_the_event_loop_are_measured() -> None:
    """B13: with synchronous flush every answer waits for one."""
    async with running_broker(settings={**PROMETHEUS, "flushDiskType": "SYNC_FLUSH"}) as kit:
        await kit.send()
        assert kit.broker.exporter is not None
        delays = kit.broker.exporter.probe.delays
        await eventually(lambda: sum(delays.counts) > 0, "the loop is measured")
        samples = await scraped(kit)
        assert value(samples, "cometmq_flush_latency_seconds_count") >= 1
        assert value(samples, "cometmq_flush_latency_seconds_sum") > 0
        assert value(samples, "cometmq_event_loop_delay_seconds_count") >= 1
        assert value(samples, "rocketmq_storage_flush_behind_bytes") == 0


async def test_further_labels_are_those_of_the_settings() -> None:
    """B13: `metricsLabel`, as RocketMQ has it."""
    async with running_broker(settings={**PROMETHEUS, "metricsLabel": "zone:north,nonsense,rack:7"}) as kit:
        samples = await scraped(kit)
        assert value(samples, "rocketmq_broker_permission", {"zone": "north", "rack": "7"}) == 6


async def test_a_broker_is_ready_while_it_is_registered_and_takes_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B13: and says why when it is not."""
    async with running_broker(settings=PROMETHEUS) as kit:
        port, context = port_of(kit.broker), kit.broker.context
        assert await ask(port, "/health") == (200, "ok\n")
        assert await ask(port, "/ready") == (200, "ok\n")
        context.store.flags.set(Trouble.DISK_FULL)
        status, text = await ask(port, "/ready")
        assert (status, text.startswith("the store takes no messages: the disk of the log is too full")) == (
            503,
            True,
        )
        context.store.flags.set(Trouble.DISK_FULL, on=False)
        with monkeypatch.context() as patch:
            patch.setattr(type(context.disk), "usage", lambda *_: DiskUsage(100, 99, 1))
            status, text = await ask(port, "/ready")
            assert (status, text.startswith("the disk of the log is full to 99%")) == (503, True)
        context.registration.registered = frozenset()
        assert await ask(port, "/ready") == (
            503,
            f"registered with none of its name servers: {kit.embedded.namesrv}\n",
        )
        assert await ask(port, "/health") == (200, "ok\n")
        context.registration.register()
        await eventually(lambda: bool(context.registration.registered), "it is registered again")
        assert await ask(port, "/ready") == (200, "ok\n")


async def test_a_broker_without_its_name_server_is_not_ready() -> None:
    settings = {**PROMETHEUS, "registerBrokerTimeoutMills": "300"}
    async with running_broker(settings=settings) as kit:
        kit.broker.context.settings.broker = msgspec.structs.replace(
            kit.broker.context.settings.broker, namesrv_addr="127.0.0.1:1", force_register=True
        )
        registration = kit.broker.context.registration
        registration.registered = frozenset()
        registration.register()
        await registration.settled(30)
        assert (await ask(port_of(kit.broker), "/ready"))[0] == 503


async def test_a_broker_that_recovers_is_well_and_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """B13: whoever watches it neither restarts it nor sends clients to it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    told: dict[str, tuple[int, str]] = {}
    recover = MessageStore.start

    async def ask_and_recover(store: MessageStore) -> Recovered:
        for path in ("/health", "/ready", "/metrics"):
            told[path] = await ask(port, path)
        return await recover(store)

    monkeypatch.setattr(MessageStore, "start", ask_and_recover)
    async with running_broker(settings={**PROMETHEUS, "metricsPromExporterPort": str(port)}):
        assert await ask(port, "/ready") == (200, "ok\n")
    assert told["/health"] == (200, "ok\n")
    assert told["/ready"] == (503, "the store is being recovered, or the broker is about to stop\n")
    status, text = told["/metrics"]
    assert status == 200
    assert "cometmq_connections" in text
    assert "rocketmq_consumer_lag" not in text


async def test_a_loop_that_hangs_is_neither_well_nor_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "HANGS_AFTER_S", -1.0)
    async with running_broker(settings=PROMETHEUS) as kit:
        for path in ("/health", "/ready"):
            status, text = await ask(port_of(kit.broker), path)
            assert (status, text.startswith("the event loop has not answered for")) == (503, True)


async def test_other_paths_are_not_there_and_the_port_is_free_after_a_stop() -> None:
    async with running_broker(settings=PROMETHEUS) as kit:
        port = port_of(kit.broker)
        status, text = await ask(port, "/")
        assert status == 404
        assert "/metrics, /health, /ready" in text
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_port_that_is_taken_stops_the_start_with_a_reason() -> None:
    async with running_broker(settings=PROMETHEUS) as kit:
        taken = {**PROMETHEUS, "metricsPromExporterPort": str(port_of(kit.broker))}
        with pytest.raises(CometError, match="choose another metricsPromExporterPort"):
            async with running_broker(settings=taken):
                pass


async def test_without_a_host_of_its_own_the_status_port_listens_where_the_broker_does() -> None:
    """B13: a broker on the loopback shows its metrics to nobody else."""
    settings = {**PROMETHEUS, "metricsPromExporterHost": ""}
    async with running_broker(settings=settings) as kit:
        exporter = kit.broker.exporter
        assert exporter is not None
        assert exporter._server is not None
        assert (
            exporter._server._socket.getsockname()[0]
            == kit.broker.context.settings.broker.bind_address
            == "127.0.0.1"
        )
