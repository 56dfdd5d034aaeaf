"""Prometheus exporter of a broker: `/metrics`, `/health` and `/ready`.

Rules kept here:
- A scrape runs on a thread of its own; it copies each table before it walks it.
- Every metric has the labels of the broker: its cluster, its name, and those of `metricsLabel`. It has at
  most `metricsOtelCardinalityLimit` series; `cometmq_left_out_series` has the number of the others.
- A broker is ready when it has recovered, its ports are open, a name server knows it, and its store takes
  messages.
- `rocketmq_processor_watermark` is by RocketMQ's processors. No request waits before the handlers here; the
  watermark is the number of requests that wait for the disk, for a worker, or for a name server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from cometmq.broker.config import BrokerConfig
from cometmq.broker.context import BrokerContext
from cometmq.broker.monitor.metrics import LagMetrics, MessageTypeMetrics, TrafficMetrics
from cometmq.ports.disk import used_percent
from cometmq.remoting.metrics.counters import RemotingMetrics
from cometmq.remoting.metrics.exporter import MetricsExporter
from cometmq.remoting.metrics.families import Families, one
from cometmq.remoting.metrics.push import LogSink, OtlpSink, Sink
from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

SEND: Final = "send"
ADMIN: Final = "admin"
"""Every request that has no other processor."""
_CODES: Final = {
    SEND: (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.RECALL_MESSAGE,
    ),
    "pull": (
        RequestCode.PULL_MESSAGE,
        RequestCode.PEEK_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO,
    ),
    "lite_pull": (RequestCode.LITE_PULL_MESSAGE,),
    "ack": (
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    ),
    "query_message": (RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID),
    "heartbeat": (RequestCode.HEART_BEAT,),
    "client_manager": (RequestCode.UNREGISTER_CLIENT, RequestCode.CHECK_CLIENT_CONFIG),
    "consumer_manager": (
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.QUERY_CONSUMER_OFFSET,
    ),
    "transaction": (RequestCode.END_TRANSACTION,),
    "reply": (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2),
}
_PROCESSOR_OF: Final = {int(code): name for name, codes in _CODES.items() for code in codes}


def running(ports: Iterable[RemotingMetrics]) -> dict[str, int]:
    """How many requests of each processor are begun and not answered."""
    counts = dict.fromkeys((*_CODES, ADMIN), 0)
    for each in ports:
        for code, counted in list(each.codes.items()):
            counts[_PROCESSOR_OF.get(code, ADMIN)] += counted.running
    return counts


def _sink(config: BrokerConfig) -> tuple[Sink | None, float]:
    """Where the metrics are pushed to, and how often; None where they are scraped."""
    if config.metrics_exporter_type == "LOG":
        return LogSink(), config.metric_logging_exporter_interval_in_mills / 1000
    if config.metrics_exporter_type == "OTLP_GRPC":
        sink = OtlpSink(
            config.metrics_grpc_exporter_target,
            config.metrics_grpc_exporter_header,
            config.metric_grpc_exporter_time_out_in_mills / 1000,
            in_delta=config.metrics_in_delta,
        )
        return sink, config.metric_grpc_exporter_interval_in_mills / 1000
    return None, 0.0


class BrokerExporter(MetricsExporter):
    """Serves `/metrics`, `/health` and `/ready` for one broker."""

    setting = "metricsPromExporterPort"
    host_setting = "metricsPromExporterHost"

    def __init__(self, context: BrokerContext, *metrics: RemotingMetrics) -> None:
        config = context.settings.broker
        sink, interval_s = _sink(config)
        super().__init__(
            *metrics,
            host=config.metrics_prom_exporter_host or config.bind_address,
            port=config.metrics_prom_exporter_port,
            sink=sink,
            interval_s=interval_s,
        )
        self._context = context
        lag = LagMetrics(context.clock, context.store, context.topics, context.offsets)
        self._parts = (TrafficMetrics(context), lag, MessageTypeMetrics(context))

    # Readiness

    def unready_reason(self) -> str | None:
        """Why clients should not be sent here; None if they should."""
        context = self._context
        if not self.is_serving:
            return "the store is being recovered, or the broker is about to stop"
        addresses = context.name_servers.addresses
        if addresses and not context.registration.registered:
            return f"registered with none of its name servers: {', '.join(addresses)}"
        if context.store.trouble is not None:
            return f"the store takes no messages: {context.store.trouble}"
        return self._full_disk()

    def _full_disk(self) -> str | None:
        config = self._context.settings.store
        most = config.refuse_writes_above_percent
        used = min(
            used_percent(self._context.disk.usage(folder)) for folder in config.writable_commit_log_folders
        )
        if used > most:
            return f"the disk of the log is full to {used}%, and messages are refused above {most}%"
        return None

    # Metrics

    def families(self) -> Families:
        """The metric families of a scrape, with the labels of the broker."""
        config = self._context.settings.broker
        node = {
            "cluster": config.broker_cluster_name,
            "node_type": "broker",
            "node_id": config.broker_name,
            **_further_labels(config.metrics_label),
        }
        return Families(node, config.metrics_otel_cardinality_limit)

    def server_metrics(self, families: Families) -> Iterator[Metric]:
        """The metrics of this broker, beside those of its ports."""
        yield from self._clients(families)
        counters = self._context.traffic
        for name, what, count in (
            ("put_messages", "Messages taken.", counters.put_messages),
            ("put_bytes", "Bytes of the log that they take.", counters.put_bytes),
            ("put_failures", "Messages that the store refused.", counters.put_failures),
            ("got_messages", "Messages given to consumers.", counters.got_messages),
            ("got_bytes", "Bytes given to consumers.", counters.got_bytes),
            ("sent_back", "Messages that consumers sent back.", counters.sent_back_messages),
            ("dead_letters", "Messages that were given up.", sum(list(counters.dead_letters.values()))),
            ("delayed_messages", "Messages of delay levels that were delivered.", counters.delayed_messages),
        ):
            yield families.counter(f"cometmq_{name}", what, one(count))
        yield self._watermarks(families)
        for part in self._parts:
            yield from part.collect(families)

    def _watermarks(self, families: Families) -> Metric:
        waiting = running(self._metrics)
        waiting[SEND] += self._context.sender.pressure.waiting
        samples = [({"processor": name}, count) for name, count in waiting.items()]
        return families.gauge(
            "rocketmq_processor_watermark", "Requests that wait with their answer.", samples
        )

    def _clients(self, families: Families) -> Iterator[Metric]:
        clients = self._context.clients
        yield families.gauge("cometmq_held_pulls", "Pulls that wait.", one(self._context.held_pulls.count))
        yield families.gauge(
            "cometmq_inconsistent_consumer_group", "Groups whose consumers subscribe to different things.",
            [({"consumer_group": group}, 1) for group in clients.inconsistent_groups],
        )  # fmt: skip
        yield families.counter(
            "cometmq_inconsistent_subscriptions", "Differences found.", one(clients.inconsistencies)
        )
        yield families.counter(
            "cometmq_refused_consumers", "Consumers refused for a difference.", one(clients.refused_consumers)
        )


def _further_labels(text: str) -> dict[str, str]:
    """The labels of `metricsLabel`, `name:value,name:value`; what is no pair is passed over."""
    pairs = (item.partition(":") for item in text.split(","))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip() and value.strip()}
