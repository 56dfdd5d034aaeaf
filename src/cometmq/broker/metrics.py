"""The counters of a broker in Prometheus' form, beside those of its port.

Rules kept here: a scrape runs on a thread of its own; it copies each table before it walks it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cometmq.broker.state import BrokerState
from cometmq.remoting.metrics import RemotingMetrics
from cometmq.remoting.prometheus import MetricsExporter

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class BrokerExporter(MetricsExporter):
    """Serves `/metrics` for one broker."""

    def __init__(self, state: BrokerState, metrics: RemotingMetrics, *, host: str, port: int) -> None:
        super().__init__(metrics, host=host, port=port)
        self._state = state

    def collect(self) -> Iterable[Metric]:
        """Called by the library at every scrape."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        yield from super().collect()
        clients = self._state.clients
        yield GaugeMetricFamily("cometmq_held_pulls", "Pulls that wait.", self._state.held_pulls.count)
        inconsistent = GaugeMetricFamily(
            "cometmq_inconsistent_consumer_group",
            "Groups whose consumers subscribe to different things.",
            labels=["consumer_group"],
        )
        for group in clients.inconsistent_groups:
            inconsistent.add_metric([group], 1)
        yield inconsistent
        yield CounterMetricFamily(
            "cometmq_inconsistent_subscriptions", "Differences found.", clients.inconsistencies
        )
        yield CounterMetricFamily(
            "cometmq_refused_consumers", "Consumers refused for a difference.", clients.refused_consumers
        )
        counters = self._state.counters
        for name, what, count in (
            ("put_messages", "Messages taken.", counters.put_messages),
            ("put_bytes", "Bytes of the log that they take.", counters.put_bytes),
            ("put_failures", "Messages that the store refused.", counters.put_failures),
            ("got_messages", "Messages given to consumers.", counters.got_messages),
            ("got_bytes", "Bytes given to consumers.", counters.got_bytes),
            ("sent_back", "Messages that consumers sent back.", counters.sent_back),
            ("dead_letters", "Messages that were given up.", counters.dead_letters),
            ("delayed_messages", "Messages of delay levels that were delivered.", counters.delayed),
        ):
            yield CounterMetricFamily(f"cometmq_{name}", what, count)
