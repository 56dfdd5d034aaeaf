"""The counters of an endpoint in Prometheus' form, over HTTP.

Rules kept here: reading costs the event loop nothing; a scrape runs on a thread of its own and copies each
table before it walks it. The library is imported by the first who exports.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cometmq.model.errors import CometError
from cometmq.remoting.metrics import UNKNOWN_CODE, RemotingMetrics
from cometmq.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from threading import Thread
    from wsgiref.simple_server import WSGIServer

    from prometheus_client.metrics_core import Metric


class MetricsExporter:
    """Serves `/metrics` for one endpoint."""

    def __init__(self, metrics: RemotingMetrics, *, host: str, port: int) -> None:
        self._metrics = metrics
        self._running: tuple[WSGIServer, Thread] | None = None
        self._host = host
        self.port = port
        """The port; with 0, the one that was free, known after `start`."""

    def start(self) -> None:
        """Listen; raises `CometError` if the port cannot be had."""
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._running = start_http_server(self.port, self._host, registry)
        except OSError as error:
            raise CometError(
                f"metrics cannot be served on {self._host}:{self.port}: {error.strerror or error}; "
                "choose another metricsPort"
            ) from None
        self.port = self._running[0].server_port

    def stop(self) -> None:
        """Serve no more; nothing happens if it was never started."""
        if self._running is not None:
            server, thread = self._running
            self._running = None
            server.shutdown()
            server.server_close()
            thread.join()

    def collect(self) -> Iterable[Metric]:
        """Called by the library at every scrape."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        metrics = self._metrics
        requests = CounterMetricFamily("cometmq_requests", "Requests by code.", labels=["code"])
        oneways = CounterMetricFamily("cometmq_oneway_requests", "One-way requests by code.", labels=["code"])
        seconds = CounterMetricFamily("cometmq_request_seconds", "Time in handlers by code.", labels=["code"])
        longest = GaugeMetricFamily("cometmq_request_longest_seconds", "Longest handler.", labels=["code"])
        failures = CounterMetricFamily(
            "cometmq_request_failures", "Answers that were no success.", labels=["code", "response"]
        )
        for code, counted in list(metrics.codes.items()):
            name = request_name(code)
            requests.add_metric([name], counted.requests)
            oneways.add_metric([name], counted.oneways)
            seconds.add_metric([name], counted.seconds)
            longest.add_metric([name], counted.longest_seconds)
            for response, count in list(counted.failures.items()):
                failures.add_metric([name, response_name(response)], count)
        closed = CounterMetricFamily("cometmq_connections_closed", "Ended connections.", labels=["reason"])
        for reason, count in list(metrics.closed.items()):
            closed.add_metric([reason], count)
        yield from (requests, oneways, seconds, longest, failures, closed)
        yield GaugeMetricFamily("cometmq_connections", "Open connections.", metrics.connections)
        yield GaugeMetricFamily("cometmq_running_requests", "Unanswered requests.", metrics.running)
        yield CounterMetricFamily("cometmq_connections_accepted", "Connections made.", metrics.accepted)
        yield CounterMetricFamily("cometmq_connections_refused", "Over the limit.", metrics.refused)
        yield CounterMetricFamily("cometmq_received_bytes", "Bytes read.", metrics.bytes_in)
        yield CounterMetricFamily("cometmq_sent_bytes", "Bytes written.", metrics.bytes_out)
        yield CounterMetricFamily("cometmq_unreadable_frames", "Headers not read.", metrics.unreadable)
        yield CounterMetricFamily("cometmq_unmatched_answers", "Answers too late.", metrics.unmatched)


def request_name(code: int) -> str:
    """The name of a request code for people."""
    if code == UNKNOWN_CODE:
        return "UNKNOWN"
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)


def response_name(code: int) -> str:
    """The name of a response code for people."""
    try:
        return ResponseCode(code).name
    except ValueError:
        return str(code)
