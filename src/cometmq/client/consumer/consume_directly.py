"""One message consumed on request, whatever the state of its queue, and the report about it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

import msgspec

from cometmq.client.consumer.listener import ConsumeResult, Listener, Outcome
from cometmq.client.names import unwrap
from cometmq.model import message_properties as names
from cometmq.model.errors import ClientError
from cometmq.model.message import StoredMessage
from cometmq.wire.bodies.consumer_info import ConsumeDirectlyResult, DirectResult
from cometmq.wire.codes import ResponseCode

_RESULTS: Final = {
    ConsumeResult.SUCCESS: DirectResult.CR_SUCCESS,
    ConsumeResult.RECONSUME_LATER: DirectResult.CR_LATER,
    ConsumeResult.SUSPEND: DirectResult.CR_LATER,
    ConsumeResult.COMMIT: DirectResult.CR_COMMIT,
    ConsumeResult.ROLLBACK: DirectResult.CR_ROLLBACK,
}


async def consume_directly(
    listener_of: Callable[[str], Listener | None], message: StoredMessage, namespace: str, *, ordered: bool
) -> ConsumeDirectlyResult:
    """Run the listener of the message's topic and say how it went; offsets stay as they are."""
    topic = unwrap(namespace, message.properties.get(names.RETRY_TOPIC, message.topic))
    listener = listener_of(topic)
    if listener is None:
        raise ClientError(f"no listener for topic {topic} is here", code=ResponseCode.SYSTEM_ERROR)
    message = msgspec.structs.replace(message, topic=topic)
    began = time.monotonic()
    if listener.is_async:
        outcome = await listener.call_async([message], message.queue)
    else:
        outcome = await asyncio.to_thread(listener.call, [message], message.queue)
    return ConsumeDirectlyResult(
        consume_result=_direct_result(outcome),
        order=ordered,
        auto_commit=outcome.context is None or outcome.context.auto_commit,
        remark=outcome.error,
        spent_time_mills=int((time.monotonic() - began) * 1000),
    )


def _direct_result(outcome: Outcome) -> DirectResult:
    return DirectResult.CR_THROW_EXCEPTION if outcome.error is not None else _RESULTS[outcome.result]
