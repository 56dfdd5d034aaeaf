"""Prometheus metrics of transactions, timers and pops.

Rules kept here:
- Where Apache's broker has a metric, it has Apache's name as its exporter writes it, with the unit behind it,
  and Apache's labels. What only we have begins with `cometmq_`.
- Totals of timers and of the revive topic are not told apart by topic and group: every message would have to
  pay for that.
- There is no buffer of checkpoints, which Apache has three metrics of (`rocketmq_pop_offset_buffer_size`,
  `rocketmq_pop_checkpoint_buffer_size`, `rocketmq_pop_buffer_scan_time_consume`): a checkpoint is in the log
  before its messages are handed out.
- A scrape runs on a thread of its own: it copies each table before it walks it, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from cometmq.broker.context import BrokerContext
from cometmq.broker.monitor.traffic import LOCAL_STORAGE
from cometmq.broker.topics.names import TIMER_TOPIC
from cometmq.model.histogram import Histogram
from cometmq.remoting.families import Families, Labels, Ranges, one, paced, ranges_of

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

SNAPSHOT_BOUNDS_S: Final = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)
"""The spans in which messages that wait are counted, the same as RocketMQ's."""
MOST_SLOTS: Final = 100_000
"""So many slots of the wheel are looked at for that; further ones count as empty."""

_Samples = Iterable[tuple[Labels, float]]
"""The labels and the value of each."""


class MessageTypeMetrics:
    """The metrics of one broker."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def collect(self, families: Families) -> Iterator[Metric]:
        """Everything, as it is now."""
        yield from self._transactions(families)
        yield from self._timers(families)
        yield from self._pops(families)
        yield families.counter(
            "cometmq_set_aside_records", "Records that a service could not process, ever.",
            [({"service": name}, count) for name, count in list(self._context.set_aside.totals.items())],
        )  # fmt: skip

    def _transactions(self, families: Families) -> Iterator[Metric]:
        transactions = self._context.transactions
        halves = {topic: metric.count for topic, metric in list(transactions.counts.counts.items())}
        yield families.gauge("rocketmq_half_messages", "Open transactions.", _by_topic(halves))
        ending, checking = transactions.ending, transactions.checking
        yield families.counter(
            "rocketmq_commit_messages", "Transactions that succeeded.", _by_topic(ending.committed)
        )
        yield families.counter(
            "rocketmq_rollback_messages", "Transactions that did not.", _by_topic(ending.rolled_back)
        )
        yield families.histogram(
            # RocketMQ says milliseconds here, too, and means seconds.
            "rocketmq_finish_message_latency_milliseconds", "Age of transactions that succeeded.",
            _times_by_topic(self._context.traffic.commit_times),
        )  # fmt: skip
        yield families.counter(
            "cometmq_transaction_checks", "Half messages that were put again to be asked about.",
            one(checking.checked),
        )  # fmt: skip
        yield families.counter(
            "cometmq_given_up_transactions", "Half messages that nobody could say the end of.",
            one(checking.given_up),
        )  # fmt: skip

    def _timers(self, families: Families) -> Iterator[Metric]:
        timers = self._context.timers
        waiting = {topic: metric.count for topic, metric in list(timers.counts.counts.items())}
        behind = timers.enqueuing.lag if timers.runs else 0
        yield families.gauge(
            "rocketmq_timing_messages", "Messages that wait for their time.", _stored(_by_topic(waiting))
        )
        yield families.gauge(
            "rocketmq_timer_enqueue_lag", "Messages that are not in the wheel yet.", _stored(one(behind))
        )
        yield families.gauge(
            "rocketmq_timer_enqueue_latency_milliseconds", "How long the next of them has waited for that.",
            _stored(one(self._enqueue_latency_ms())),
        )  # fmt: skip
        yield families.gauge(
            "rocketmq_timer_message_snapshot", "Messages in the wheel, by the time until they are due.",
            _stored(self._snapshot(sum(waiting.values()))),
        )  # fmt: skip
        yield families.histogram(
            "rocketmq_delay_message_latency_seconds", "For how long messages were put aside.",
            [
                ({**LOCAL_STORAGE, **labels}, times)
                for labels, times in _times_by_topic(self._context.traffic.delays)
            ],
        )  # fmt: skip
        yield families.gauge(
            "rocketmq_timer_dequeue_lag", "Messages in the wheel.", _stored(one(sum(waiting.values())))
        )
        yield families.gauge(
            "rocketmq_timer_dequeue_latency_milliseconds", "How late the next message is.",
            _stored(one(timers.read_behind_ms)),
        )  # fmt: skip
        yield families.counter(
            "rocketmq_timer_enqueue", "Messages taken.", _stored(one(timers.enqueuing.taken))
        )
        yield families.counter(
            "rocketmq_timer_dequeue", "Messages delivered.", _stored(one(timers.delivery.delivered))
        )
        yield families.counter(
            "cometmq_cancelled_timers", "Messages that were taken back.", one(timers.delivery.cancelled)
        )

    def _enqueue_latency_ms(self) -> int:
        timers, context = self._context.timers, self._context
        queue = context.store.queues.by_topic.get(TIMER_TOPIC, {}).get(0)
        if not timers.runs or queue is None:
            return 0
        try:
            unit = queue.unit(timers.enqueuing.queue_offset)
            stored_ms = None if unit is None else context.store.log.store_time(unit[0])
        except (OSError, ValueError, IndexError):  # its file is being deleted
            stored_ms = None
        return 0 if stored_ms is None else max(context.clock.now_ms() - stored_ms, 0)

    def _snapshot(self, waiting: int) -> Iterator[tuple[Labels, float]]:
        timers, context = self._context.timers, self._context
        slot_ms = context.settings.store.timer_slot_ms
        begin_ms = context.clock.now_ms() // slot_ms * slot_ms
        last_ms = min(timers.enqueuing.latest_ms, begin_ms + MOST_SLOTS * slot_ms) if waiting else -1
        start_ms = begin_ms
        for bound_s in SNAPSHOT_BOUNDS_S:
            end_ms = begin_ms + bound_s * 1000
            slots = range(start_ms, min(end_ms, last_ms + 1), slot_ms)
            yield {"timer_bound_s": str(bound_s)}, sum(timers.count_at(each) for each in paced(slots))
            start_ms = end_ms

    def _pops(self, families: Families) -> Iterator[Metric]:
        pop = self._context.pop
        written, read = pop.revive_topic, pop.reviver
        yield families.counter(
            "rocketmq_pop_revive_in_message", "Records written for the revive topic.",
            _by_type(written.checkpoints, written.acks),
        )  # fmt: skip
        yield families.counter(
            "rocketmq_pop_revive_out_message", "Records read in the revive topic.",
            _by_type(read.checkpoints, read.acks),
        )  # fmt: skip
        yield families.counter(
            "rocketmq_pop_revive_retry_messages", "Messages that were brought back.", one(read.revived)
        )
        lags = [({"queue_id": str(queue.queue_id)}, read.lag_of(queue)) for queue in list(read.queues)]
        # Apache's broker says milliseconds here, too, and means records.
        yield families.gauge(
            "rocketmq_pop_revive_lag_milliseconds", "Records of the revive topic that are not done.",
            [(labels, behind) for labels, (behind, _) in lags],
        )  # fmt: skip
        yield families.gauge(
            "rocketmq_pop_revive_latency_milliseconds", "For how long the first checkpoint is overdue.",
            [(labels, late_ms) for labels, (_, late_ms) in lags],
        )  # fmt: skip


def _stored(samples: _Samples) -> _Samples:
    """Samples with the labels of the store."""
    return [({**LOCAL_STORAGE, **labels}, value) for labels, value in samples]


def _by_topic(table: Mapping[str, int]) -> _Samples:
    return [({"topic": topic}, count) for topic, count in list(table.items())]


def _times_by_topic(table: Mapping[str, Histogram]) -> list[tuple[Labels, Ranges]]:
    return [({"topic": topic}, ranges_of(times)) for topic, times in list(table.items())]


def _by_type(checkpoints: int, acks: int) -> _Samples:
    return [({"revive_message_type": "CK"}, checkpoints), ({"revive_message_type": "ACK"}, acks)]
