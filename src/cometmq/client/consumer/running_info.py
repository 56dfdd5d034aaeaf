"""Answers to a broker that asks about a consumer: its running info, and one message consumed directly."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Final

import msgspec

from cometmq.client.consumer.engine import ConsumerEngine
from cometmq.client.consumer.listener import ConsumeResult, Listener, Outcome
from cometmq.client.consumer.offset_store import OffsetStore
from cometmq.client.consumer.process_queue import ProcessQueue
from cometmq.client.consumer.settings import MIB, ConsumerSettings
from cometmq.client.names import unwrap
from cometmq.model import message_properties as names
from cometmq.model.errors import ClientError
from cometmq.model.message import StoredMessage
from cometmq.model.settings import as_texts
from cometmq.wire.bodies.consumer_info import (
    PROP_CLIENT_VERSION,
    PROP_CONSUME_TYPE,
    PROP_CONSUMEORDERLY,
    PROP_CONSUMER_START_TIMESTAMP,
    PROP_NAMESERVER_ADDR,
    PROP_THREADPOOL_CORE_SIZE,
    ConsumeDirectlyResult,
    ConsumerRunningInfo,
    DirectResult,
    ProcessQueueInfo,
)
from cometmq.wire.bodies.heartbeat import ConsumerData
from cometmq.wire.codes import CURRENT, ResponseCode, version_name

_SECRET: Final = ("access_key", "secret_key", "security_token", "tls")

_RESULTS: Final = {
    ConsumeResult.SUCCESS: DirectResult.CR_SUCCESS,
    ConsumeResult.RECONSUME_LATER: DirectResult.CR_LATER,
    ConsumeResult.SUSPEND: DirectResult.CR_LATER,
    ConsumeResult.COMMIT: DirectResult.CR_COMMIT,
    ConsumeResult.ROLLBACK: DirectResult.CR_ROLLBACK,
}


def running_info(
    engine: ConsumerEngine,
    settings: ConsumerSettings,
    heartbeat: ConsumerData,
    namesrv: str,
    *,
    with_stacks: bool,
) -> ConsumerRunningInfo:
    """The running info of a consumer."""
    texts = as_texts(settings)
    properties = {_camel(name): text for name, text in texts.items() if name not in _SECRET}
    properties |= {
        "strategy": settings.strategy.name,
        PROP_NAMESERVER_ADDR: namesrv,
        PROP_CONSUME_TYPE: heartbeat.consume_type.value,
        PROP_CONSUMEORDERLY: texts.get("ordered", "false"),
        PROP_THREADPOOL_CORE_SIZE: texts.get("consume_threads", "-1"),
        PROP_CONSUMER_START_TIMESTAMP: str(engine.started_ms),
        PROP_CLIENT_VERSION: version_name(CURRENT),
    }
    table = engine.queues.table
    return ConsumerRunningInfo(
        properties=properties,
        subscription_set=heartbeat.subscription_data_set,
        mq_table={queue: _queue_info(table[queue], engine.offsets) for queue in sorted(table)},
        status_table=engine.statistics.status(),
        jstack=_stacks() if with_stacks else None,
    )


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _queue_info(pq: ProcessQueue, offsets: OffsetStore) -> ProcessQueueInfo:
    return ProcessQueueInfo(
        commit_offset=offsets.known(pq.queue) or 0,
        cached_msg_min_offset=pq.min_offset,
        cached_msg_max_offset=pq.max_offset,
        cached_msg_count=len(pq.messages),
        cached_msg_size_in_mib=pq.cached_bytes // MIB,
        transaction_msg_count=pq.being_consumed,
        locked=pq.locked,
        last_lock_timestamp=_wall_ms(pq.locked_at_s) if pq.locked_at_s else 0,
        droped=pq.dropped,
        last_pull_timestamp=_wall_ms(pq.last_pull_s),
        last_consume_timestamp=_wall_ms(pq.last_consumed_s),
    )


def _wall_ms(monotonic_s: float) -> int:
    return int((time.time() - (time.monotonic() - monotonic_s)) * 1000)


def _stacks() -> str:
    """The stacks of all threads, in place of Java's thread dump."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"{names.get(ident, '?')} (thread {ident})\n")
        parts.append("".join(traceback.format_stack(frame)))
        parts.append("\n")
    return "".join(parts)


async def consume_directly(
    listener_of: Callable[[str], Listener | None], message: StoredMessage, namespace: str, *, ordered: bool
) -> ConsumeDirectlyResult:
    """Run the listener of the message's topic and report the result; offsets do not move."""
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
