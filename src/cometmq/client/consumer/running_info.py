"""Answers to a broker that asks about a consumer: running info, statistics, one message consumed directly.

Rule kept here: counting costs an addition; rates come from totals that are noted every few seconds.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from cometmq.client.consumer.listener import ConsumeResult, Listener, Outcome
from cometmq.client.consumer.process_queue import ProcessQueue
from cometmq.client.consumer.settings import MIB, ConsumerSettings
from cometmq.client.names import unwrap
from cometmq.model import message_properties as names
from cometmq.model.errors import ClientError
from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue
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
    ConsumeStatus,
    DirectResult,
    ProcessQueueInfo,
)
from cometmq.wire.bodies.heartbeat import ConsumerData
from cometmq.wire.codes import CURRENT, ResponseCode, version_name

if TYPE_CHECKING:
    from cometmq.client.consumer.offset_store import OffsetStore

_WINDOW_S: Final = 60.0
_NOTE_EVERY_S: Final = 5.0
_SECRET: Final = ("access_key", "secret_key", "security_token", "tls")

_RESULTS: Final = {
    ConsumeResult.SUCCESS: DirectResult.CR_SUCCESS,
    ConsumeResult.RECONSUME_LATER: DirectResult.CR_LATER,
    ConsumeResult.SUSPEND: DirectResult.CR_LATER,
    ConsumeResult.COMMIT: DirectResult.CR_COMMIT,
    ConsumeResult.ROLLBACK: DirectResult.CR_ROLLBACK,
}


class HeldQueues(Protocol):
    """The queues that are read now."""

    @property
    def table(self) -> Mapping[MessageQueue, ProcessQueue]: ...


class Running(Protocol):
    """The parts of an engine that running info reads."""

    @property
    def started_ms(self) -> int: ...

    @property
    def offsets(self) -> OffsetStore: ...

    @property
    def queues(self) -> HeldQueues: ...

    @property
    def statistics(self) -> ConsumeStatistics: ...


class TopicTotals:
    """Counters of one topic."""

    __slots__ = ("call_ms", "calls", "consumed", "failed", "notes", "pull_ms", "pulled", "pulls")

    def __init__(self) -> None:
        self.pulls = 0
        self.pulled = 0
        self.pull_ms = 0.0
        self.calls = 0
        self.call_ms = 0.0
        self.consumed = 0
        self.failed = 0
        self.notes: deque[tuple[float, tuple[float, ...]]] = deque([(time.monotonic(), (0,) * 7)])

    def count_pull(self, messages: int, seconds: float) -> None:
        self.pulls += 1
        self.pulled += messages
        self.pull_ms += seconds * 1000

    def count_call(self, done: int, seconds: float) -> None:
        """Count one call of a listener, and the messages that are done with it."""
        self.calls += 1
        self.call_ms += seconds * 1000
        self.consumed += done

    def count_results(self, done: int, failed: int) -> None:
        """Count more messages of a call that was counted."""
        self.consumed += done
        self.failed += failed

    def totals(self) -> tuple[float, ...]:
        return self.pulls, self.pulled, self.pull_ms, self.calls, self.call_ms, self.consumed, self.failed

    def note(self, now: float) -> None:
        if now - self.notes[-1][0] >= _NOTE_EVERY_S:
            self.notes.append((now, self.totals()))
        while len(self.notes) > 1 and now - self.notes[0][0] > _WINDOW_S:
            self.notes.popleft()


class ConsumeStatistics:
    """Statistics of one consumer."""

    def __init__(self) -> None:
        self._topics: defaultdict[str, TopicTotals] = defaultdict(TopicTotals)

    def of(self, topic: str) -> TopicTotals:
        return self._topics[topic]

    def note(self) -> None:
        """Note the totals; call it every few seconds."""
        now = time.monotonic()
        for totals in self._topics.values():
            totals.note(now)

    def status(self) -> dict[str, ConsumeStatus]:
        """The rates of all topics."""
        now = time.monotonic()
        return {topic: _status(totals, now) for topic, totals in self._topics.items()}


def _status(totals: TopicTotals, now: float) -> ConsumeStatus:
    began, before = totals.notes[0]
    seconds = max(now - began, 0.001)
    pulls, pulled, pull_ms, calls, call_ms, consumed, failed = (
        after - earlier for after, earlier in zip(totals.totals(), before, strict=True)
    )
    return ConsumeStatus(
        pull_rt=pull_ms / pulls if pulls else 0.0,
        pull_tps=pulled / seconds,
        consume_rt=call_ms / calls if calls else 0.0,
        consume_ok_tps=consumed / seconds,
        consume_failed_tps=failed / seconds,
        consume_failed_msgs=int(failed),
    )


def running_info(
    engine: Running,
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
