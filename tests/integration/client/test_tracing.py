"""Traces of producers, with brokers that do what the test tells them."""

from __future__ import annotations

import asyncio

import pytest

from cometmq.client.producer.producer import Producer
from cometmq.client.producer.transactions import TransactionProducer, TransactionState
from cometmq.client.trace import dispatcher as trace_dispatcher
from cometmq.client.trace.records import (
    SendTrace,
    TraceMessageType,
    TraceRecord,
    TransactionTrace,
    decode_records,
)
from cometmq.model.errors import SendError, SettingsError
from cometmq.model.message import Message
from cometmq.model.names import TRACE_TOPIC
from cometmq.remoting.handler import Answer
from cometmq.wire.codes import ResponseCode
from cometmq.wire.headers.send import SendMessageResponse
from tests.integration.client.client_kit import (
    HANG_UP,
    SILENT,
    TOPIC,
    FakeBroker,
    FakeCluster,
    running_cluster,
)


def producer_of(cluster: FakeCluster, **options: object) -> Producer:
    """A producer that traces, on a cluster whose last broker has the traces."""
    cluster.set_route(TRACE_TOPIC, queues=1, brokers=cluster.brokers[-1:])
    cluster.set_route(TOPIC, brokers=cluster.brokers[:1])
    return Producer("shop", namesrv=cluster.namesrv, enable_trace=True, **options)  # type: ignore[arg-type]


def traces_at(broker: FakeBroker) -> list[TraceRecord]:
    return [record for message in broker.received for record in decode_records(message.body)]


async def test_every_message_that_was_sent_leaves_a_record() -> None:
    """P6."""
    async with running_cluster(brokers=2) as cluster:
        store, traces = cluster.brokers
        async with producer_of(cluster) as producer:
            receipt = await producer.send(Message(TOPIC, b"paid", tags="t", keys=["a", "b"]))
            await producer.send(Message(TOPIC, b"later", delay_level=3))
            batch = await producer.send_batch([Message(TOPIC, b"x"), Message(TOPIC, b"y")])
        records = traces_at(traces)
        assert {key for each in traces.received for key in each.properties["KEYS"].split()} >= {
            receipt.msg_id,
            "a",
            "b",
            *(each.msg_id for each in batch),
        }
        assert all(each.header.topic == TRACE_TOPIC for each in traces.received)
        assert all(
            each.header.producer_group.startswith("_INNER_TRACE_PRODUCER-shop-PRODUCE-")
            for each in traces.received
        )
    assert all(isinstance(record, SendTrace) for record in records)
    first = records[0]
    assert isinstance(first, SendTrace)
    assert (first.msg_id, first.offset_msg_id) == (receipt.msg_id, receipt.offset_msg_id)
    assert (first.group, first.topic, first.tags, first.keys) == ("shop", TOPIC, "t", "a b")
    assert (first.store_host, first.body_length, first.success) == (store.address, 4, True)
    assert [record.message_type for record in records if isinstance(record, SendTrace)] == [
        TraceMessageType.NORMAL,
        TraceMessageType.DELAYED,
        TraceMessageType.NORMAL,
        TraceMessageType.NORMAL,
    ]
    assert [record.msg_id for record in records[2:]] == [each.msg_id for each in batch]


async def test_a_transaction_leaves_a_half_and_an_end() -> None:
    async with running_cluster() as cluster:
        cluster.set_route(TRACE_TOPIC)
        async with (
            TransactionProducer(
                "shop", check=lambda _: None, namesrv=cluster.namesrv, enable_trace=True
            ) as producer,
            producer.transaction(Message(TOPIC, b"paid")) as transaction,
        ):
            transaction.decide(TransactionState.ROLLBACK)
        half, end = traces_at(cluster.brokers[0])
    assert isinstance(half, SendTrace)
    assert half.message_type == TraceMessageType.HALF
    assert isinstance(end, TransactionTrace)
    assert (end.msg_id, end.state, end.from_check) == (half.msg_id, "ROLLBACK_MESSAGE", False)


async def test_what_was_stored_but_not_safely_is_no_success() -> None:
    async with running_cluster(brokers=2) as cluster:
        async with producer_of(cluster) as producer:
            cluster.brokers[0].always = ResponseCode.FLUSH_DISK_TIMEOUT
            await producer.send(Message(TOPIC, b"paid"))
        (record,) = traces_at(cluster.brokers[1])
    assert isinstance(record, SendTrace)
    assert not record.success


async def test_what_was_not_stored_or_is_not_to_be_traced_leaves_nothing() -> None:
    untraced = SendMessageResponse(msg_id="0" * 32, queue_id=0, queue_offset=0, trace_on=False)
    async with running_cluster(brokers=2) as cluster:
        async with producer_of(cluster, retry_times=0) as producer:
            store, traces = cluster.brokers
            store.reactions += [HANG_UP, lambda: Answer(header=untraced)]
            with pytest.raises(SendError):
                await producer.send(Message(TOPIC, b"lost"))
            await producer.send(Message(TOPIC, b"secret"))
            await producer.send_oneway(Message(TOPIC, b"gone"))
            await producer.send(Message(TRACE_TOPIC, b"no record of records"))
        assert traces_at(traces) == []


async def test_a_broker_that_takes_no_traces_holds_up_no_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """P6: traces are dropped, messages are not."""
    monkeypatch.setattr(trace_dispatcher, "STOP_TIMEOUT_S", 0.01)
    async with running_cluster(brokers=2) as cluster:
        store, traces = cluster.brokers
        traces.always = SILENT
        async with producer_of(cluster) as producer:
            for _ in range(3):
                await asyncio.gather(*(producer.send(Message(TOPIC, b"x")) for _ in range(1000)))
            assert len(store.received) == 3000
    assert "records of message traces were dropped" in caplog.text


async def test_a_trace_that_cannot_start_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(self: object) -> None:
        raise SettingsError("not today")

    monkeypatch.setattr(trace_dispatcher.TraceDispatcher, "start", refuse)
    async with running_cluster() as cluster:
        producer = producer_of(cluster)
        with pytest.raises(SettingsError, match="not today"):
            await producer.start()
        await producer.stop()
