"""OpenTelemetry traces of messages: spans of sends and listeners, joined across processes.

```python
producer = Producer("order-service", namesrv="127.0.0.1:9876", interceptors=[TracingInterceptor()])
```

Rules kept here:
- Names and attributes are those of OpenTelemetry's semantic conventions for messaging and for RocketMQ.
- A message carries the context of its span in its properties, written and read by the global propagator:
  `traceparent` and `tracestate` unless the application chose another one.
- The span of a listener links to the span of each message. With one message, and no span around it, it is
  also a child of that span, so that send and processing are one trace.
- A message that has a context already, because somebody else created it, keeps it; its send is linked to it.

This module needs the extra `otel`, or the package `opentelemetry-api` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar, Token
from typing import Final

import msgspec

try:
    from opentelemetry import context as contexts
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider
    from opentelemetry.util.types import AttributeValue
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "cometmq.otel needs OpenTelemetry; install it with: pip install 'cometmq[otel]'", name=missing.name
    ) from missing

from cometmq._version import __version__
from cometmq.client.consumer.interceptor import ConsumeInterceptor
from cometmq.client.consumer.listener import ConsumeContext, ConsumeResult
from cometmq.client.producer.interceptor import SendInterceptor
from cometmq.client.producer.sender import SendReceipt
from cometmq.model import message_properties as names
from cometmq.model.message import Message, StoredMessage
from cometmq.model.queue import MessageQueue

__all__ = ["TracingInterceptor"]

_SCHEMA: Final = "https://opentelemetry.io/schemas/1.30.0"
_DONE: Final = (None, ConsumeResult.SUCCESS, ConsumeResult.COMMIT)


class TracingInterceptor(SendInterceptor, ConsumeInterceptor):
    """Makes a span of every send of a producer, and of every call of a consumer's listener.

    One object may serve any number of producers and consumers. Without a tracer provider, the global one is
    used. `group` is the consumer group that spans of listeners name.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None, *, group: str | None = None) -> None:
        self._tracer = trace.get_tracer("cometmq", __version__, tracer_provider, schema_url=_SCHEMA)
        self._group = group
        self._sending: dict[int, Span] = {}
        """By the identity of the message on its way; as many as the producers have in flight."""
        self._processing: ContextVar[tuple[Span, Token[Context]] | None] = ContextVar("cometmq", default=None)

    # Sends.

    def before_send(self, message: Message) -> Message:
        """Start the span, and have the message carry its context."""
        created = _span_context(_extracted(message.properties))
        span = self._tracer.start_span(
            f"send {message.topic}",
            kind=SpanKind.PRODUCER if created is None else SpanKind.CLIENT,
            attributes=_common("send", message.topic) | _of_message(message),
            links=() if created is None else (Link(created),),
        )
        properties = dict(message.properties)
        if created is None:
            propagate.inject(properties, trace.set_span_in_context(span))
        sent = msgspec.structs.replace(message, properties=properties)
        self._sending[id(sent)] = span
        return sent

    def after_send(self, message: Message, receipt: SendReceipt | None, error: BaseException | None) -> None:
        """End the span."""
        span = self._sending.pop(id(message))
        if receipt is not None:
            span.set_attribute("messaging.message.id", receipt.msg_id)
            span.set_attribute("messaging.destination.partition.id", _partition(receipt.queue))
        _end(span, error)

    # Listeners.

    def before_consume(self, messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
        """Start the span, and make it the current one."""
        attributes = _common("process", messages[0].topic)
        attributes["messaging.destination.partition.id"] = _partition(messages[0].queue)
        attributes["server.address"] = messages[0].store_host.ip
        attributes["server.port"] = messages[0].store_host.port
        if self._group is not None:
            attributes["messaging.consumer.group.name"] = self._group
        around = contexts.get_current()
        extracted = [_extracted(message.properties) for message in messages]
        if len(messages) == 1:
            attributes |= _of_message(messages[0]) | {"messaging.message.id": messages[0].msg_id}
            if _span_context(around) is None:
                around = extracted[0]
        else:
            attributes["messaging.batch.message_count"] = len(messages)
        links = [
            Link(created, {"messaging.message.id": message.msg_id})
            for message, each in zip(messages, extracted, strict=True)
            if (created := _span_context(each)) is not None
        ]
        name = f"process {messages[0].topic}"
        span = self._tracer.start_span(name, around, SpanKind.CONSUMER, attributes, links)
        self._processing.set((span, contexts.attach(trace.set_span_in_context(span, around))))

    def after_consume(
        self,
        messages: Sequence[StoredMessage],
        context: ConsumeContext,
        result: ConsumeResult | None,
        error: BaseException | None,
    ) -> None:
        """End the span; a failed result is an error of the span too."""
        begun = self._processing.get()
        if begun is None:
            return
        self._processing.set(None)
        span, token = begun
        contexts.detach(token)
        if error is None and result not in _DONE:
            span.set_attribute("error.type", result.name)
            span.set_status(Status(StatusCode.ERROR, result.value))
        _end(span, error)


def _extracted(properties: Mapping[str, str]) -> Context:
    """The context that a message carries."""
    return propagate.extract(properties, Context())


def _span_context(context: Context) -> SpanContext | None:
    """The span of a context, if it has one."""
    found = trace.get_current_span(context).get_span_context()
    return found if found.is_valid else None


def _end(span: Span, error: BaseException | None) -> None:
    if error is not None:
        kind = type(error)
        name = (
            kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        )
        span.set_attribute("error.type", name)
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end()


def _common(operation: str, topic: str) -> dict[str, AttributeValue]:
    return {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }


def _of_message(message: Message | StoredMessage) -> dict[str, AttributeValue]:
    """The attributes of one message."""
    found: dict[str, AttributeValue] = {
        "messaging.message.body.size": len(message.body),
        "messaging.rocketmq.message.type": "normal",
    }
    if message.tags:
        found["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        found["messaging.rocketmq.message.keys"] = list(message.keys)
    if message.sharding_key is not None:
        found["messaging.rocketmq.message.group"] = message.sharding_key
        found["messaging.rocketmq.message.type"] = "fifo"
    if isinstance(message, StoredMessage):
        if message.properties.get(names.TRAN_MSG) == "true":
            found["messaging.rocketmq.message.type"] = "transaction"
        return found
    if message.is_delayed:
        found["messaging.rocketmq.message.type"] = "delay"
    if message.delay_level:
        found["messaging.rocketmq.message.delay_time_level"] = message.delay_level
    if message.deliver_at_ms is not None:
        found["messaging.rocketmq.message.delivery_timestamp"] = message.deliver_at_ms
    return found


def _partition(queue: MessageQueue) -> str:
    """The queue within its topic."""
    return f"{queue.broker_name}:{queue.queue_id}"
