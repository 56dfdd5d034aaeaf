"""OpenTelemetry spans of sends and listeners, on the SDK's own exporter."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from cometmq import aio
from cometmq.client.consumer.listener import ConsumeContext, ConsumeResult
from cometmq.model.errors import SendError
from cometmq.model.message import Message, StoredMessage
from cometmq.otel import TracingInterceptor
from cometmq.testing import EmbeddedBroker
from tests.integration.client.client_kit import TOPIC, running_cluster


class Spans:
    """A tracer provider, and the spans that ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.interceptor = TracingInterceptor(self.provider, group="billing")

    def ended(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()


@pytest.fixture
def spans() -> Spans:
    return Spans()


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


async def stored(broker: EmbeddedBroker, messages: Sequence[Message], spans: Spans) -> list[StoredMessage]:
    """The messages as a consumer gets them, sent one by one to one queue."""
    async with (
        aio.Producer("g", namesrv=broker.namesrv, interceptors=[spans.interceptor]) as producer,
        aio.PullConsumer("billing", namesrv=broker.namesrv) as consumer,
    ):
        queue = (await producer.send(messages[0])).queue
        for message in messages[1:]:
            await producer.send(message, queue=queue)
        reply = await consumer.pull(queue, 0)
        return list(reply.messages)


async def test_a_send_is_a_span_and_the_message_carries_its_context(spans: Spans) -> None:
    message = Message(TOPIC, b"paid", tags="eu", keys=["7", "8"], sharding_key="k", properties={"own": "x"})
    async with (
        running_cluster() as cluster,
        aio.Producer("g", namesrv=cluster.namesrv, interceptors=[spans.interceptor]) as producer,
    ):
        with spans.provider.get_tracer("app").start_as_current_span("order") as around:
            receipt = await producer.send(message)
        (received,) = cluster.received
    sent, _ = spans.ended()
    assert sent.name == "send orders"
    assert sent.kind is SpanKind.PRODUCER
    assert sent.parent == around.get_span_context()
    assert sent.status.is_ok
    trace_id, span_id = ids(sent)
    assert received.properties["traceparent"].startswith(f"00-{trace_id:032x}-{span_id:016x}-")
    assert received.properties["own"] == "x"
    assert attributes(sent) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": TOPIC,
        "messaging.destination.partition.id": f"{receipt.queue.broker_name}:{receipt.queue.queue_id}",
        "messaging.message.id": receipt.msg_id,
        "messaging.message.body.size": 4,
        "messaging.rocketmq.message.type": "fifo",
        "messaging.rocketmq.message.tag": "eu",
        "messaging.rocketmq.message.keys": ("7", "8"),
        "messaging.rocketmq.message.group": "k",
    }


async def test_a_failed_send_is_a_failed_span(spans: Spans) -> None:
    async with (
        running_cluster() as cluster,
        aio.Producer(
            "g", namesrv=cluster.namesrv, retry_times=0, interceptors=[spans.interceptor]
        ) as producer,
    ):
        cluster.brokers[0].always = 13
        with pytest.raises(SendError):
            await producer.send(Message(TOPIC, b"x", delay_level=3))
    (sent,) = spans.ended()
    assert sent.status.status_code is StatusCode.ERROR
    assert attributes(sent)["error.type"] == "cometmq.model.errors.SendError"
    assert attributes(sent)["messaging.rocketmq.message.delay_time_level"] == 3
    assert [event.name for event in sent.events] == ["exception"]
    assert spans.interceptor._sending == {}


async def test_every_message_of_a_batch_has_its_own_span(spans: Spans) -> None:
    async with (
        running_cluster() as cluster,
        aio.Producer("g", namesrv=cluster.namesrv, interceptors=[spans.interceptor]) as producer,
    ):
        receipts = await producer.send_batch([Message(TOPIC, b"x")] * 3)
    found = spans.ended()
    assert [attributes(span)["messaging.message.id"] for span in found] == [each.msg_id for each in receipts]
    assert len({ids(span) for span in found}) == 3


async def test_a_message_that_has_a_context_keeps_it(spans: Spans) -> None:
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with (
        running_cluster() as cluster,
        aio.Producer("g", namesrv=cluster.namesrv, interceptors=[spans.interceptor]) as producer,
    ):
        await producer.send(Message(TOPIC, b"x", properties={"traceparent": given}))
        assert cluster.received[0].properties["traceparent"] == given
    (sent,) = spans.ended()
    assert sent.kind is SpanKind.CLIENT
    assert [f"{link.context.span_id:016x}" for link in sent.links] == ["b7ad6b7169203331"]


async def test_a_listener_is_a_child_of_the_send_and_around_what_it_does(
    spans: Spans, rocketmq: EmbeddedBroker
) -> None:
    (message,) = await stored(rocketmq, [Message("orders", b"x", tags="paid")], spans)
    (sent,) = spans.ended()
    spans.interceptor.before_consume([message], ConsumeContext(message.queue))
    spans.provider.get_tracer("app").start_span("inside").end()
    spans.interceptor.after_consume([message], ConsumeContext(message.queue), ConsumeResult.SUCCESS, None)
    assert not trace.get_current_span().get_span_context().is_valid
    _, inside, process = spans.ended()
    assert process.name == "process orders"
    assert process.kind is SpanKind.CONSUMER
    assert process.parent is not None
    assert (process.parent.trace_id, process.parent.span_id) == ids(sent)
    assert [(link.context.trace_id, link.context.span_id) for link in process.links] == [ids(sent)]
    assert inside.parent == process.context
    assert process.status.is_ok
    assert attributes(process) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": f"{message.broker_name}:{message.queue_id}",
        "messaging.consumer.group.name": "billing",
        "messaging.message.id": message.msg_id,
        "messaging.message.body.size": 1,
        "messaging.rocketmq.message.type": "normal",
        "messaging.rocketmq.message.tag": "paid",
        "server.address": message.store_host.ip,
        "server.port": message.store_host.port,
    }


async def test_a_list_of_messages_is_one_span_that_links_to_each(
    spans: Spans, rocketmq: EmbeddedBroker
) -> None:
    messages = await stored(rocketmq, [Message("orders", b"x"), Message("orders", b"y")], spans)
    sends = spans.ended()
    error = ValueError("no")
    spans.interceptor.before_consume(messages, ConsumeContext(messages[0].queue))
    spans.interceptor.after_consume(
        messages, ConsumeContext(messages[0].queue), ConsumeResult.RECONSUME_LATER, error
    )
    process = spans.ended()[-1]
    assert process.parent is None
    assert [(link.context.trace_id, link.context.span_id) for link in process.links] == [
        ids(each) for each in sends
    ]
    assert attributes(process)["messaging.batch.message_count"] == 2
    assert attributes(process)["error.type"] == "ValueError"
    assert process.status.status_code is StatusCode.ERROR


async def test_a_message_that_is_to_come_again_is_a_failed_span(
    spans: Spans, rocketmq: EmbeddedBroker
) -> None:
    messages = await stored(rocketmq, [Message("orders", b"x")], spans)
    spans.interceptor.before_consume(messages, ConsumeContext(messages[0].queue))
    spans.interceptor.after_consume(
        messages, ConsumeContext(messages[0].queue), ConsumeResult.RECONSUME_LATER, None
    )
    process = spans.ended()[-1]
    assert attributes(process)["error.type"] == "RECONSUME_LATER"
    assert process.status.status_code is StatusCode.ERROR


async def test_from_a_producer_to_a_listener_is_one_trace(spans: Spans, rocketmq: EmbeddedBroker) -> None:
    """C4: also around an asynchronous listener, whose own spans are inside."""
    done = asyncio.Event()
    consumer = aio.PushConsumer(
        "billing",
        namesrv=rocketmq.namesrv,
        consume_from_where="earliest",
        interceptors=[spans.interceptor],
    )

    async def bill(message: StoredMessage) -> None:
        spans.provider.get_tracer("app").start_span("bill").end()
        done.set()

    consumer.subscribe("orders", listener=bill)
    async with aio.Producer("g", namesrv=rocketmq.namesrv, interceptors=[spans.interceptor]) as producer:
        await producer.send(Message("orders", b"x"))
    async with consumer:
        await asyncio.wait_for(done.wait(), 30)
    sent, billed, process = spans.ended()
    assert (sent.name, billed.name, process.name) == ("send orders", "bill", "process orders")
    assert process.parent is not None
    assert (process.parent.trace_id, process.parent.span_id) == ids(sent)
    assert billed.parent == process.context


def test_without_open_telemetry_the_module_says_what_to_install() -> None:
    script = "import sys; sys.modules['opentelemetry'] = None; import cometmq.otel"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "cometmq.otel needs OpenTelemetry; install it with: pip install 'cometmq[otel]'" in ran.stderr
