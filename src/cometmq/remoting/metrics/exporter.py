"""The metrics exporter of a server: `/metrics`, `/health` and `/ready` over HTTP, or pushes.

Rules kept here:
- A scrape runs on a thread of its own, copies each table before it walks it, and rests after every few
  samples, so that the event loop only shares the interpreter with it.
- RocketMQ's metrics have RocketMQ's names and labels; CometMQ's own begin with `cometmq_`.
- `prometheus_client` is imported when an exporter starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from cometmq.model.errors import CometError, SettingsError
from cometmq.remoting.metrics.counters import (
    LATENCY_BOUNDS_S,
    UNKNOWN_CODE,
    AnswerTimes,
    CodeMetrics,
    RemotingMetrics,
)
from cometmq.remoting.metrics.families import Families, Labels, Ranges, one, ranges_of
from cometmq.remoting.metrics.loop_probe import LoopProbe
from cometmq.remoting.metrics.push import MetricsPusher, Sink
from cometmq.remoting.open_ports import warn_if_open
from cometmq.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from cometmq.remoting.metrics.status_server import Page, StatusServer

log = logging.getLogger("cometmq.remoting")

HANGS_AFTER_S: Final = 10.0
"""A loop that has not answered for this long hangs."""
_BOUNDS_MS: Final = tuple(bound * 1000 for bound in LATENCY_BOUNDS_S)


def _import_prometheus() -> None:
    """Import it before a scrape has to wait for it; blocks."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        raise SettingsError(
            "metrics need prometheus-client, which is not installed: pip install 'cometmq[server]'"
        ) from None


class MetricsExporter:
    """Serves `/metrics`, `/health` and `/ready` for one server, or pushes its metrics at an interval.

    `metrics` are those of its ports.
    """

    setting = "metricsPort"
    """The key of the port in the settings."""
    host_setting = "bindAddress"

    def __init__(
        self,
        *metrics: RemotingMetrics,
        host: str,
        port: int,
        sink: Sink | None = None,
        interval_s: float = 0.0,
    ) -> None:
        self._metrics = metrics
        self._pusher = None if sink is None else MetricsPusher(_Scrape(self).collect, sink, interval_s)
        self._server: StatusServer | None = None
        self._host = host
        self.probe = LoopProbe()
        self.port = port
        """The port; with 0, the one that was free, known after `start`."""
        self.is_serving = False
        """Whether the ports of the server are open; set by the server."""

    async def start(self) -> None:
        """Listen, or begin to push; raises `CometError` if that is impossible."""
        await asyncio.to_thread(_import_prometheus)
        self.probe.start()
        if self._pusher is not None:
            self._pusher.start()
            return
        await asyncio.to_thread(self._listen)
        log.info("metrics, health and readiness on http://%s:%d", self._host, self.port)
        what = "metrics with the names of topics and groups can be read"
        warn_if_open(log, what, self._host, (self.port,), self.host_setting)

    def _listen(self) -> None:
        from cometmq.remoting.metrics.status_server import StatusServer, health_page

        pages = {
            "/metrics": self._metrics_page,
            "/health": lambda _: health_page(self.unhealthy_reason()),
            "/ready": lambda _: health_page(self.unhealthy_reason() or self.unready_reason()),
        }
        try:
            self._server = StatusServer(self._host, self.port, pages)
        except OSError as error:
            raise CometError(
                f"metrics cannot be served on {self._host}:{self.port}: {error.strerror or error}; "
                f"choose another {self.setting}"
            ) from None
        self.port = self._server.server_port
        self._server.open()

    async def stop(self) -> None:
        """Serve no more; nothing happens if it was never started."""
        if self._pusher is not None:
            await self._pusher.stop()
        self.is_serving = False
        self.probe.stop()
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.close)

    # How the server is

    def unhealthy_reason(self) -> str | None:
        """Returns why the process should be restarted, or None."""
        silent_s = self.probe.silent_s
        if silent_s > HANGS_AFTER_S:
            return f"the event loop has not answered for {silent_s:.0f} s; something blocks it"
        return None

    def unready_reason(self) -> str | None:
        """Returns why the server should get no work, or None."""
        return None if self.is_serving else "not started yet, or about to stop"

    # What it counts

    def _metrics_page(self, accept: str) -> Page:
        from prometheus_client.exposition import choose_encoder

        from cometmq.remoting.metrics.status_server import Page

        encode, content_type = choose_encoder(accept)
        return Page(HTTPStatus.OK, content_type, encode(_Scrape(self)))

    def collect(self) -> Iterable[Metric]:
        families = self.families()
        yield from self.endpoint_metrics(families)
        yield from self.server_metrics(families)
        yield families.left_out()

    def families(self) -> Families:
        return Families({})

    def server_metrics(self, families: Families) -> Iterable[Metric]:
        """The metrics of this server beside those of its ports."""
        return ()

    def endpoint_metrics(self, families: Families) -> Iterator[Metric]:
        """The counters of all ports together, and the delay of the event loop."""
        codes = [(code, counted) for each in self._metrics for code, counted in list(each.codes.items())]
        yield families.histogram(
            "rocketmq_rpc_latency_milliseconds", "Time to the answer.", _latencies(codes)
        )
        for name, what, attribute in (
            ("cometmq_requests", "Requests by code.", "requests"),
            ("cometmq_oneway_requests", "One-way requests by code.", "oneways"),
            ("cometmq_request_seconds", "Time in handlers by code.", "seconds"),
        ):
            yield families.counter(name, what, _by_code(codes, attribute))
        longest: dict[str, float] = {}
        for code, counted in codes:
            name = request_name(code)
            longest[name] = max(longest.get(name, 0.0), counted.longest_seconds)
        samples = [({"code": name}, seconds) for name, seconds in longest.items()]
        yield families.gauge("cometmq_request_longest_seconds", "Longest handler.", samples)
        yield families.counter("cometmq_request_failures", "Answers that were no success.", _failures(codes))
        closed = _sums(((reason,), count) for each in self._metrics for reason, count in each.closed.items())
        yield families.counter(
            "cometmq_connections_closed", "Ended connections.",
            [({"reason": reason}, count) for (reason,), count in closed.items()],
        )  # fmt: skip
        yield from self._totals(families)
        delays: list[tuple[Labels, Ranges]] = [({}, ranges_of(self.probe.delays))]
        yield families.histogram("cometmq_event_loop_delay_seconds", "How late a timer came.", delays)

    def _totals(self, families: Families) -> Iterator[Metric]:
        for name, what, attribute in (
            ("cometmq_connections", "Open connections.", "connections"),
            ("cometmq_running_requests", "Unanswered requests.", "running"),
        ):
            yield families.gauge(name, what, one(self._sum(attribute)))
        for name, what, attribute in (
            ("cometmq_connections_accepted", "Connections made.", "accepted"),
            ("cometmq_connections_refused", "Over the limit.", "refused"),
            ("cometmq_received_bytes", "Bytes read.", "bytes_in"),
            ("cometmq_sent_bytes", "Bytes written.", "bytes_out"),
            ("cometmq_unreadable_frames", "Headers not read.", "unreadable"),
            ("cometmq_unmatched_answers", "Answers too late.", "unmatched"),
        ):
            yield families.counter(name, what, one(self._sum(attribute)))

    def _sum(self, attribute: str) -> int:
        return sum(getattr(each, attribute) for each in self._metrics)


class _Scrape:
    """The collector that `prometheus_client` reads."""

    def __init__(self, exporter: MetricsExporter) -> None:
        self._exporter = exporter

    def collect(self) -> Iterable[Metric]:
        exporter = self._exporter
        if exporter.is_serving:
            return exporter.collect()
        # A server that has not recovered yet has counted nothing, and its tables are being filled.
        return exporter.endpoint_metrics(exporter.families())


_Codes = list[tuple[int, CodeMetrics]]


def _sums(items: Iterable[tuple[tuple[str, ...], float]]) -> dict[tuple[str, ...], float]:
    """Sum the values of each key over all ports."""
    sums: dict[tuple[str, ...], float] = {}
    for key, value in items:
        sums[key] = sums.get(key, 0) + value
    return sums


def _by_code(codes: _Codes, attribute: str) -> list[tuple[Labels, float]]:
    sums = _sums(((request_name(code),), getattr(counted, attribute)) for code, counted in codes)
    return [({"code": name}, value) for (name,), value in sums.items()]


def _failures(codes: _Codes) -> list[tuple[Labels, float]]:
    sums = _sums(
        ((request_name(code), response_name(response)), count)
        for code, counted in codes
        for response, count in list(counted.failures.items())
    )
    return [({"code": name, "response": response}, count) for (name, response), count in sums.items()]


def _latencies(codes: _Codes) -> list[tuple[Labels, Ranges]]:
    found: dict[tuple[int, int, bool], Ranges] = {}
    for code, counted in codes:
        for response, times, is_held in _times(counted):
            before = found.get((code, response, is_held))
            counts = list(times.latencies)
            if before is not None:
                counts = [a + b for a, b in zip(counts, before.counts, strict=True)]
            total = times.seconds * 1000 + (0.0 if before is None else before.total)
            found[code, response, is_held] = Ranges(_BOUNDS_MS, counts, total)
    return [(_rpc_labels(*key), ranges) for key, ranges in found.items() if any(ranges.counts)]


def _times(counted: CodeMetrics) -> Iterator[tuple[int, AnswerTimes, bool]]:
    """Yields response code, times, and whether the answers waited for a message."""
    failures = list(counted.failure_times.items())
    success_s = max(counted.seconds - sum(times.seconds for _, times in failures), 0.0)
    yield ResponseCode.SUCCESS.value, AnswerTimes(counted.latencies, success_s), False
    for response, times in failures + list(counted.late_times.items()):
        yield response, times, False
    for response, times in list(counted.held_times.items()):
        yield response, times, True


def _rpc_labels(code: int, response: int, is_held: bool) -> Mapping[str, str]:
    return {
        "protocol_type": "remoting",
        "request_code": request_name(code).lower(),
        "response_code": response_name(response).lower(),
        "is_long_polling": "true" if is_held else "false",
        "result": "success",
    }


def request_name(code: int) -> str:
    if code == UNKNOWN_CODE:
        return "UNKNOWN"
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)


def response_name(code: int) -> str:
    try:
        return ResponseCode(code).name
    except ValueError:
        return str(code)
