"""Metrics and readiness of a name server.

RocketMQ's name server has no metrics; all names are our own, except for the request latency.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cometmq.namesrv.state import NamesrvState
from cometmq.remoting.metrics.counters import RemotingMetrics
from cometmq.remoting.metrics.exporter import MetricsExporter
from cometmq.remoting.metrics.families import Families, one

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class NamesrvExporter(MetricsExporter):
    """Serves `/metrics`, `/health` and `/ready` for one name server."""

    def __init__(self, state: NamesrvState, metrics: RemotingMetrics, *, host: str, port: int) -> None:
        super().__init__(metrics, host=host, port=port)
        self._state = state

    def unready_reason(self) -> str | None:
        state, config = self._state, self._state.config
        if self.is_serving and config.need_wait_for_service:
            up_s = (state.clock.monotonic_ms() - state.started_ms) / 1000
            if up_s < config.wait_seconds_for_service:
                return f"waits {config.wait_seconds_for_service} s for its brokers (waitSecondsForService)"
        return super().unready_reason()

    def server_metrics(self, families: Families) -> Iterator[Metric]:
        tables = self._state.tables
        live = Counter(cluster for cluster, _ in list(tables.live))
        yield families.gauge(
            "cometmq_namesrv_live_brokers", "Brokers that are registered, by cluster.",
            [({"cluster": cluster}, count) for cluster, count in live.items()],
        )  # fmt: skip
        yield families.gauge("cometmq_namesrv_broker_names", "Names of brokers.", one(len(tables.brokers)))
        yield families.counter(
            "cometmq_namesrv_takeovers", "Routes of brokers that moved to another address.",
            one(self._state.takeovers.total),
        )  # fmt: skip
        yield families.gauge("cometmq_namesrv_topics", "Topics with a route.", one(len(tables.topics)))
