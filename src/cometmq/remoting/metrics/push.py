"""Metrics that are pushed: to a collector over OTLP and gRPC, or as lines to the log.

Rules kept here:
- The metrics are those of a scrape, with the same names and labels, collected on a thread at an interval and
  once more at the stop.
- A push that fails is logged, once until one succeeds; the next comes at its time. Nothing is kept for later:
  totals are totals, and what a lost delta had comes with the next.
- OpenTelemetry's SDK is imported when a collector is used: `pip install 'cometmq[otel]'`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

import msgspec

from cometmq.model.errors import CometError, SettingsError

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import export
    from prometheus_client.metrics_core import Metric

log = logging.getLogger("cometmq.metrics")

Key = tuple[str, frozenset[tuple[str, str]]]
_LAST_PUSH_S: Final = 3.0


class Sink(Protocol):
    """Takes the metrics of one moment, on a thread; raises `CometError` if they are lost."""

    def push(self, metrics: Iterable[Metric]) -> None: ...

    def close(self) -> None: ...


class MetricsPusher:
    """Pushes metrics at an interval."""

    def __init__(self, collect: Callable[[], Iterable[Metric]], sink: Sink, interval_s: float) -> None:
        self._collect = collect
        self._sink = sink
        self._interval_s = interval_s
        self._task: asyncio.Task[None] | None = None
        self._failed = False

    def start(self) -> None:
        """Push from now on."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await asyncio.to_thread(self._push)

    def _push(self) -> None:
        try:
            self._sink.push(self._collect())
        except CometError as error:
            if not self._failed:
                log.warning("metrics are not exported: %s", error)
            self._failed = True
        except Exception:
            log.exception("metrics could not be collected")
        else:
            if self._failed:
                log.warning("metrics are exported again")
            self._failed = False

    async def stop(self) -> None:
        """Push once more, and end."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        try:
            async with asyncio.timeout(_LAST_PUSH_S):
                await asyncio.to_thread(self._push)
        except TimeoutError:
            log.warning("the last metrics are not exported: the collector takes too long")
        await asyncio.to_thread(self._sink.close)


class Point(NamedTuple):
    """One series of a metric: a value, or the counts of a histogram's ranges with their sum."""

    labels: Mapping[str, str]
    value: float
    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()


class LogSink:
    """Writes each series as one line of JSON to the log `cometmq.metrics`."""

    def push(self, metrics: Iterable[Metric]) -> None:
        for metric in metrics:
            for point in _points(metric):
                line: dict[str, object] = {"metric": metric.name, "type": metric.type, "labels": point.labels}
                if point.counts:
                    line |= {"count": sum(point.counts), "sum": point.value}
                    line |= {"bounds": point.bounds, "counts": point.counts}
                else:
                    line["value"] = point.value
                log.info("%s", msgspec.json.encode(line).decode())

    def close(self) -> None:
        pass


class OtlpSink:
    """Sends metrics to an OpenTelemetry collector."""

    def __init__(self, target: str, headers: str, timeout_s: float, *, in_delta: bool) -> None:
        if not target:
            raise SettingsError("metricsGrpcExporterTarget is empty; name the collector, e.g. 127.0.0.1:4317")
        try:
            from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
        except ImportError:
            raise SettingsError(
                "metricsExporterType = OTLP_GRPC needs OpenTelemetry; run: pip install 'cometmq[otel]'"
            ) from None
        self._exporter = OTLPMetricExporter(
            endpoint=target if "://" in target else f"http://{target}",
            headers=_headers(headers),
            timeout=timeout_s,
        )
        self._target = target
        self._timeout_s = timeout_s
        self._in_delta = in_delta
        self._started_ns = self._last_ns = time.time_ns()
        self._last: dict[Key, Point] = {}

    def push(self, metrics: Iterable[Metric]) -> None:
        from opentelemetry.sdk.metrics.export import (
            MetricExportResult,
            MetricsData,
            ResourceMetrics,
            ScopeMetrics,
        )
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        now_ns = time.time_ns()
        since_ns = self._last_ns if self._in_delta else self._started_ns
        seen: dict[Key, Point] = {}
        converted = [self._converted(metric, since_ns, now_ns, seen) for metric in metrics]
        scope = ScopeMetrics(InstrumentationScope("cometmq"), [each for each in converted if each], "")
        data = MetricsData([ResourceMetrics(Resource({"service.name": "cometmq"}), [scope], "")])
        if (
            self._exporter.export(data, timeout_millis=self._timeout_s * 1000)
            is not MetricExportResult.SUCCESS
        ):
            raise CometError(f"the collector {self._target} did not take them; see whether it runs")
        self._last, self._last_ns = seen, now_ns

    def _converted(
        self, metric: Metric, since_ns: int, now_ns: int, seen: dict[Key, Point]
    ) -> export.Metric | None:
        from opentelemetry.sdk.metrics import export

        temporality = export.AggregationTemporality
        points = list(_points(metric))
        if not points:
            return None
        data: export.Gauge | export.Sum | export.Histogram
        if metric.type == "gauge":
            data = export.Gauge(
                [export.NumberDataPoint(point.labels, now_ns, now_ns, point.value) for point in points]
            )
            return export.Metric(metric.name, metric.documentation, "", data)
        if self._in_delta:
            points = [self._delta(metric.name, point, seen) for point in points]
        kind = temporality.DELTA if self._in_delta else temporality.CUMULATIVE
        if metric.type == "counter":
            numbers = [
                export.NumberDataPoint(point.labels, since_ns, now_ns, point.value) for point in points
            ]
            data = export.Sum(numbers, kind, is_monotonic=True)
        else:
            unknown = cast(float, None)  # smallest and largest value
            data = export.Histogram(
                [
                    export.HistogramDataPoint(
                        *(point.labels, since_ns, now_ns, sum(point.counts), point.value),
                        *(point.counts, point.bounds, unknown, unknown),
                    )
                    for point in points
                ],
                kind,
            )
        return export.Metric(metric.name, metric.documentation, "", data)

    def _delta(self, name: str, point: Point, seen: dict[Key, Point]) -> Point:
        key = (name, frozenset(point.labels.items()))
        seen[key] = point
        before = self._last.get(key)
        if before is None or before.value > point.value:  # new, or counted from 0 again
            return point
        counts = tuple(now - then for now, then in zip(point.counts, before.counts, strict=True))
        return point._replace(value=point.value - before.value, counts=counts)

    def close(self) -> None:
        self._exporter.shutdown()


def _headers(text: str) -> dict[str, str]:
    """The headers of `name:value,name:value`; what is no pair is passed over."""
    pairs = (part.split(":", 1) for part in text.split(","))
    return {pair[0].strip().lower(): pair[1].strip() for pair in pairs if len(pair) == 2}


def _points(metric: Metric) -> Iterator[Point]:
    """The series of a metric; the samples of a histogram come range by range, then its count and its sum."""
    if metric.type != "histogram":
        for sample in metric.samples:
            yield Point(sample.labels, sample.value)
        return
    bounds: list[float] = []
    counts: list[int] = []
    for sample in metric.samples:
        if sample.name.endswith("_bucket"):
            bounds.append(float(sample.labels["le"]))
            counts.append(int(sample.value) - sum(counts))
        elif sample.name.endswith("_sum"):
            finite = tuple(bound for bound in bounds if bound < math.inf)
            yield Point(sample.labels, sample.value, finite, tuple(counts))
            bounds, counts = [], []
