"""Transactions, timers and pops in Prometheus' form.

Rules kept here:
- Where Apache's broker has a metric, it has Apache's name as its exporter writes it, with the unit behind it,
  and Apache's labels. What only we have begins with `cometmq_`.
- Totals of timers and of the revive topic are not told apart by topic and group: every message would have to
  pay for that.
- A scrape runs on a thread of its own: it copies each table before it walks it, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from cometmq.broker.state import BrokerState
from cometmq.broker.traffic_metrics import LOCAL_STORAGE
from cometmq.remoting.families import Families, Labels, one

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_Samples = Iterable[tuple[Labels, float]]
"""The labels and the value of each."""


class KindsMetrics:
    """The metrics of one broker."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def collect(self, families: Families) -> Iterator[Metric]:
        """Everything, as it is now."""
        yield from self._transactions(families)
        yield from self._timers(families)
        yield from self._pops(families)

    def _transactions(self, families: Families) -> Iterator[Metric]:
        transactions = self._state.transactions
        halves = {topic: metric.count for topic, metric in list(transactions.counts.counts.items())}
        yield families.gauge("rocketmq_half_messages", "Open transactions.", _by_topic(halves))
        ending, checking = transactions.ending, transactions.checking
        yield families.counter(
            "rocketmq_commit_messages", "Transactions that succeeded.", _by_topic(ending.committed)
        )
        yield families.counter(
            "rocketmq_rollback_messages", "Transactions that did not.", _by_topic(ending.rolled_back)
        )
        yield families.counter(
            "cometmq_transaction_checks", "Half messages that were put again to be asked about.",
            one(checking.checked),
        )  # fmt: skip
        yield families.counter(
            "cometmq_given_up_transactions", "Half messages that nobody could say the end of.",
            one(checking.given_up),
        )  # fmt: skip

    def _timers(self, families: Families) -> Iterator[Metric]:
        timers = self._state.timers
        waiting = {topic: metric.count for topic, metric in list(timers.counts.counts.items())}
        behind = timers.enqueuing.behind if timers.runs else 0
        yield families.gauge(
            "rocketmq_timing_messages", "Messages that wait for their time.", _stored(_by_topic(waiting))
        )
        yield families.gauge(
            "rocketmq_timer_enqueue_lag", "Messages that are not in the wheel yet.", _stored(one(behind))
        )
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

    def _pops(self, families: Families) -> Iterator[Metric]:
        pop = self._state.pop
        written, read = pop.revive_log, pop.reviver
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
    """The same, with the labels of what is in the store."""
    return [({**LOCAL_STORAGE, **labels}, value) for labels, value in samples]


def _by_topic(table: Mapping[str, int]) -> _Samples:
    return [({"topic": topic}, count) for topic, count in list(table.items())]


def _by_type(checkpoints: int, acks: int) -> _Samples:
    return [({"revive_message_type": "CK"}, checkpoints), ({"revive_message_type": "ACK"}, acks)]
