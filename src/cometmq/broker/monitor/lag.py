"""Consumer lag as Prometheus metrics: by group and topic as RocketMQ has it, and by queue.

Rules kept here:
- A group that is not online is shown like any other: that nobody consumes is what lag is watched for.
- A queue for which a group has no offset yet does not count, as with RocketMQ.
- How old the first message is that a group lacks is read from the log, for at most `MOST_TIMED` queues a
  scrape; a group for which none was read has no latency, and is counted as left out.
- Everything runs on the thread of a scrape. Nothing is looked up by a way that belongs to the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from cometmq.broker.topics.names import RETRY_PREFIX, is_system_group
from cometmq.remoting.families import Families, Labels, paced
from cometmq.store.tables.tables import TOPIC_GROUP_SEPARATOR

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from cometmq.broker.context import BrokerContext
    from cometmq.store.queue.consume_queue import ConsumeQueue

MOST_QUEUES: Final = 10_000
"""So many series the lag by queue has at most."""
MOST_TIMED: Final = 1_000
_FIRST_BYTES: Final = 512
"""The bytes fetched of a record, to read its store time."""


class QueueLag(NamedTuple):
    """How far a group is in a queue."""

    queue_id: int
    end: int
    consumed: int
    pulled: int


_AMOUNTS: Final[Sequence[tuple[str, str, Callable[[QueueLag], int]]]] = (
    ("rocketmq_consumer_lag_messages", "Not consumed.", lambda lag: lag.end - lag.consumed),
    ("rocketmq_consumer_inflight_messages", "Pulled, not consumed.", lambda lag: lag.pulled - lag.consumed),
    ("rocketmq_consumer_ready_messages", "Not pulled.", lambda lag: lag.end - lag.pulled),
)


class GroupLag(NamedTuple):
    """How far a group is in a topic."""

    labels: Labels
    queues: list[QueueLag]
    since_ms: int | None
    """When the first message was stored that is not consumed; now if all are; None if that was not read."""
    ready_ms: int | None
    """When the first message was stored that is not pulled."""


class LagMetrics:
    """The metrics of one broker."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._timed = 0

    def collect(self, families: Families) -> Iterator[Metric]:
        """Everything, as it is now."""
        self._timed = 0
        now_ms = self._context.clock.now_ms()
        lags = list(self._lags(now_ms))
        for name, what, amount in _AMOUNTS:
            samples = ((each.labels, sum(map(amount, each.queues))) for each in lags)
            yield families.gauge(name, what, samples)
        for name, what, times in (
            ("rocketmq_consumer_lag_latency_milliseconds", "Age of the first message not consumed.",
             [(each.labels, each.since_ms) for each in lags]),
            ("rocketmq_consumer_queueing_latency_milliseconds", "Age of the first message not pulled.",
             [(each.labels, each.ready_ms) for each in lags]),
        ):  # fmt: skip
            known = [
                (labels, max(now_ms - since_ms, 0)) for labels, since_ms in times if since_ms is not None
            ]
            families.leave_out(name, len(times) - len(known))
            yield families.gauge(name, what, known)
        yield self._by_queue(families, lags)

    def _by_queue(self, families: Families, lags: list[GroupLag]) -> Metric:
        name = "cometmq_consumer_queue_lag_messages"
        samples: list[tuple[Labels, float]] = []
        left_out = 0
        for each in paced(lags):
            room = MOST_QUEUES - len(samples)
            left_out += max(len(each.queues) - room, 0)
            samples += [
                ({**each.labels, "queue_id": str(lag.queue_id)}, lag.end - lag.consumed)
                for lag in each.queues[:room]
            ]
        families.leave_out(name, left_out)
        return families.gauge(name, "Messages not consumed, by queue.", samples)

    def _lags(self, now_ms: int) -> Iterator[GroupLag]:
        context = self._context
        for key, offsets in paced(list(context.offsets.table.items())):
            topic, separator, group = key.partition(TOPIC_GROUP_SEPARATOR)
            queues = context.store.queues.by_topic.get(topic)
            if not separator or queues is None or context.topics.get(topic) is None:
                continue
            found: list[QueueLag] = []
            since_ms = ready_ms = now_ms
            is_timed = True
            for queue_id, consumed in sorted(dict(offsets).items()):
                queue = queues.get(queue_id)
                if queue is None or consumed < 0:
                    continue
                end = queue.max_offset
                consumed = min(consumed, end)
                pulled = min(max(context.offsets.query_pulled(group, topic, queue_id), consumed), end)
                found.append(QueueLag(queue_id, end, consumed, pulled))
                if consumed < end:
                    first_ms = self._stored_ms(queue, consumed)
                    is_timed = is_timed and first_ms is not None
                    since_ms = min(since_ms, now_ms if first_ms is None else first_ms)
                    if pulled != consumed:
                        first_ms = self._stored_ms(queue, pulled) if pulled < end else now_ms
                    ready_ms = min(ready_ms, now_ms if first_ms is None else first_ms)
            labels = self._labels(topic, group)
            yield GroupLag(labels, found, since_ms if is_timed else None, ready_ms if is_timed else None)

    def _stored_ms(self, queue: ConsumeQueue, offset: int) -> int | None:
        """When the message at an offset was stored; None if it is not there, or too many were asked for."""
        if self._timed >= MOST_TIMED:
            return None
        self._timed += 1
        try:
            unit = queue.unit(max(offset, queue.min_offset))
            if unit is None:
                return None
            log = self._context.store.log
            log.fetch([(unit[0], _FIRST_BYTES)])  # the disk is not waited for with the interpreter held
            return log.store_time(unit[0])
        except (OSError, ValueError, IndexError):  # its file is being deleted
            return None

    def _labels(self, topic: str, group: str) -> Labels:
        is_system = self._context.topics.is_system_topic(topic) or is_system_group(group)
        return {
            "consumer_group": group,
            "topic": topic,
            "is_retry": "true" if topic.startswith(RETRY_PREFIX) else "false",
            "is_system": "true" if is_system else "false",
        }
