"""Trace hooks: record messages when producers send them, and around the listeners of consumers.

Rules kept here:
- Nothing here waits or fails: a record that cannot be handed over is dropped.
- A failed send leaves no record, as with Apache's clients: there is no id to find it by.
- Messages whose broker wants no traces (`TRACE_ON` is `false`) are not traced, nor are the traces themselves.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from cometmq.client.consumer.interceptor import ConsumeInterceptor
from cometmq.client.consumer.listener import ConsumeContext, ConsumeResult
from cometmq.client.producer.send_request import SendRequest
from cometmq.client.producer.sender import DEFAULT_REGION, SendReceipt, SendStatus
from cometmq.client.trace.dispatcher import TraceDispatcher
from cometmq.client.trace.records import (
    ConsumeBegan,
    ConsumeEnded,
    ConsumeOutcome,
    RecallTrace,
    SendTrace,
    TraceMessageType,
    TransactionTrace,
)
from cometmq.model import message_properties as names
from cometmq.model.message import Message, StoredMessage
from cometmq.model.sysflag import TRANSACTION_MASK

_OFF: Final = "false"
_REQUEST_ID_BYTES: Final = 16


@dataclass(eq=False, repr=False)
class ProducerTrace:
    """Records what a producer does."""

    dispatcher: TraceDispatcher
    _group: str
    _now_ms: Callable[[], int]

    def sent(
        self, message: Message, request: SendRequest, receipt: SendReceipt, address: str, seconds: float
    ) -> None:
        """A message was sent."""
        message_type = TraceMessageType.DELAYED if message.is_delayed else TraceMessageType.NORMAL
        if request.sys_flag & TRANSACTION_MASK:
            message_type = TraceMessageType.HALF
        self._sent(message, len(request.body), receipt, address, seconds, message_type)

    def sent_batch(
        self, messages: Sequence[Message], receipts: Sequence[SendReceipt], address: str, seconds: float
    ) -> None:
        """Messages were sent as a batch; each gets a record, so that each can be found."""
        share_s = seconds / len(messages)
        for message, receipt in zip(messages, receipts, strict=True):
            self._sent(message, len(message.body), receipt, address, share_s, TraceMessageType.NORMAL)

    def _sent(
        self,
        message: Message,
        body_length: int,
        receipt: SendReceipt,
        address: str,
        seconds: float,
        message_type: TraceMessageType,
    ) -> None:
        if not receipt.trace_on or message.topic == self.dispatcher.topic:
            return
        cost_ms = int(seconds * 1000)
        self.dispatcher.append(
            SendTrace(
                timestamp_ms=self._now_ms() - cost_ms,
                region_id=receipt.region_id,
                group=self._group,
                topic=message.topic,
                msg_id=receipt.msg_id,
                tags=message.tags,
                keys=names.KEY_SEPARATOR.join(message.keys) or None,
                store_host=address,
                body_length=body_length,
                cost_ms=cost_ms,
                message_type=message_type,
                offset_msg_id=receipt.offset_msg_id,
                success=receipt.status is SendStatus.SEND_OK,
            )
        )

    def transaction_ended(
        self, message: Message | StoredMessage, msg_id: str, address: str, state: str, *, from_check: bool
    ) -> None:
        """The broker was told how a transaction ended."""
        region = message.properties.get(names.MSG_REGION) or DEFAULT_REGION
        self.dispatcher.append(
            TransactionTrace(
                timestamp_ms=self._now_ms(),
                region_id=region,
                group=self._group,
                topic=message.topic,
                msg_id=msg_id,
                tags=message.tags,
                keys=names.KEY_SEPARATOR.join(message.keys) or None,
                store_host=address,
                message_type=TraceMessageType.COMMIT,
                transaction_id=msg_id,
                state=state,
                from_check=from_check,
            )
        )

    def recalled(self, topic: str, msg_id: str, *, success: bool) -> None:
        """A delayed message was recalled, or the broker refused that."""
        self.dispatcher.append(
            RecallTrace(
                timestamp_ms=self._now_ms(),
                region_id=DEFAULT_REGION,
                group=self._group,
                topic=topic,
                msg_id=msg_id,
                success=success,
            )
        )


@dataclass(eq=False, repr=False)
class ConsumerTrace(ConsumeInterceptor):
    """Records what a consumer does."""

    dispatcher: TraceDispatcher
    _group: str
    _now_ms: Callable[[], int]
    _late_after_ms: int | None = None
    _began: dict[int, Callable[[ConsumeOutcome], None]] = field(default_factory=dict, init=False)
    """By the identity of the context; as many as listeners run."""

    def before_consume(self, messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
        self._began[id(context)] = self.began(messages)

    def after_consume(
        self,
        messages: Sequence[StoredMessage],
        context: ConsumeContext,
        result: ConsumeResult | None,
        error: BaseException | None,
    ) -> None:
        self._began.pop(id(context))(_consume_outcome(result, error))

    def began(self, messages: Sequence[StoredMessage]) -> Callable[[ConsumeOutcome], None]:
        """Record that consumption begins; call the returned function with the outcome."""
        traced = [message for message in messages if self._is_traced(message)]
        request_id = secrets.token_hex(_REQUEST_ID_BYTES).upper()
        began_ms = self._now_ms()
        for message in traced:
            self.dispatcher.append(
                ConsumeBegan(
                    timestamp_ms=began_ms,
                    region_id=message.properties.get(names.MSG_REGION),
                    group=self._group,
                    request_id=request_id,
                    msg_id=message.msg_id,
                    retry_times=message.reconsume_times,
                    keys=message.properties.get(names.KEYS),
                )
            )

        def ended(outcome: ConsumeOutcome) -> None:
            ended_ms = self._now_ms()
            success = outcome is ConsumeOutcome.SUCCESS
            if self._late_after_ms is not None and ended_ms - began_ms >= self._late_after_ms:
                outcome = ConsumeOutcome.TIME_OUT
            for message in traced:
                self.dispatcher.append(
                    ConsumeEnded(
                        request_id=request_id,
                        msg_id=message.msg_id,
                        cost_ms=(ended_ms - began_ms) // len(messages),
                        success=success,
                        keys=message.properties.get(names.KEYS),
                        outcome=outcome,
                        timestamp_ms=ended_ms,
                        group=self._group,
                    )
                )

        return ended

    def _is_traced(self, message: StoredMessage) -> bool:
        return message.properties.get(names.TRACE_ON) != _OFF and message.topic != self.dispatcher.topic


def _consume_outcome(result: ConsumeResult | None, error: BaseException | None) -> ConsumeOutcome:
    if error is not None:
        return ConsumeOutcome.EXCEPTION
    is_done = result in (None, ConsumeResult.SUCCESS, ConsumeResult.COMMIT)
    return ConsumeOutcome.SUCCESS if is_done else ConsumeOutcome.FAILED
