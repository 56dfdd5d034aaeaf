"""What a consumer says about itself when a broker asks."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from typing import Final

from cometmq.client.consumer.engines import KnownOffsets, Running
from cometmq.client.consumer.process_queue import ProcessQueue
from cometmq.client.consumer.settings import MIB, ConsumerSettings
from cometmq.model.settings import as_texts
from cometmq.wire.bodies.consumer_info import (
    PROP_CLIENT_VERSION,
    PROP_CONSUME_TYPE,
    PROP_CONSUMEORDERLY,
    PROP_CONSUMER_START_TIMESTAMP,
    PROP_NAMESERVER_ADDR,
    PROP_THREADPOOL_CORE_SIZE,
    ConsumerRunningInfo,
    ProcessQueueInfo,
)
from cometmq.wire.bodies.heartbeat import ConsumerData
from cometmq.wire.codes import CURRENT, version_name

_SECRET: Final = ("access_key", "secret_key", "security_token", "tls")


def running_info(
    engine: Running,
    settings: ConsumerSettings,
    heartbeat: ConsumerData,
    namesrv: str,
    *,
    with_stacks: bool,
) -> ConsumerRunningInfo:
    """Everything there is to say."""
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


def _queue_info(pq: ProcessQueue, offsets: KnownOffsets) -> ProcessQueueInfo:
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
    """Where every thread of the process is, in place of Java's thread dump."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"{names.get(ident, '?')} (thread {ident})\n")
        parts.append("".join(traceback.format_stack(frame)))
        parts.append("\n")
    return "".join(parts)
