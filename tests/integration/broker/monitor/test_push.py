"""Metrics that a broker pushes: over OTLP to a collector, and as lines of its log."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as messages
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as service

from cometmq.client.producer.producer import Producer
from cometmq.model.errors import SettingsError
from cometmq.model.message import Message
from cometmq.testing import EmbeddedBroker
from tests.waiting import eventually


class Collector(service.MetricsServiceServicer):
    """An OTLP collector that keeps what it gets."""

    def __init__(self) -> None:
        self.requests: list[messages.ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []

    def Export(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        self.headers.append({item.key: item.value for item in context.invocation_metadata()})
        return messages.ExportMetricsServiceResponse()

    def points(self, name: str) -> list[Any]:
        """The data points of a metric, over all exports."""
        return [
            point
            for request in self.requests
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in getattr(metric, metric.WhichOneof("data")).data_points
        ]


def value_of(point: Any) -> float:
    return float(getattr(point, point.WhichOneof("value")))


@contextmanager
def collector() -> Iterator[tuple[Collector, str]]:
    found = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    service.add_MetricsServiceServicer_to_server(found, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield found, f"127.0.0.1:{port}"
    server.stop(None)


def settings(target: str, **more: str) -> dict[str, str]:
    return {
        "metricsExporterType": "OTLP_GRPC",
        "metricsGrpcExporterTarget": target,
        "metricGrpcExporterIntervalInMills": "100",
        **more,
    }


async def _send(broker: EmbeddedBroker, count: int) -> None:
    async with Producer("payments", namesrv=broker.namesrv) as producer:
        for _ in range(count):
            await producer.send(Message("orders", b"hello"))


async def test_a_collector_gets_the_metrics_of_a_broker() -> None:
    """B13: with Apache's names, the labels of the broker, and the headers that were asked for."""
    with collector() as (found, target):
        more = {"metricsGrpcExporterHeader": "X-Tenant: blue,oops", "metricsLabel": "zone:a"}
        async with EmbeddedBroker(settings=settings(target, **more)) as broker:
            await _send(broker, 3)

            def arrived() -> bool:
                return any(value_of(point) == 3 for point in found.points("rocketmq_messages_in"))

            await eventually(arrived, "the count of messages arrives")
            await eventually(
                lambda: found.points("rocketmq_rpc_latency_milliseconds") != [], "and a histogram"
            )
        point = next(point for point in found.points("rocketmq_messages_in") if value_of(point) == 3)
        labels = {item.key: item.value.string_value for item in point.attributes}
        assert (labels["topic"], labels["zone"], labels["node_type"]) == ("orders", "a", "broker")
        assert 0 < point.start_time_unix_nano < point.time_unix_nano
        assert found.headers[0]["x-tenant"] == "blue"
        latency = found.points("rocketmq_rpc_latency_milliseconds")[-1]
        assert len(latency.bucket_counts) == len(latency.explicit_bounds) + 1
        assert sum(latency.bucket_counts) == latency.count > 0


async def test_deltas_add_up_to_the_total() -> None:
    """B13: metricsInDelta."""
    with collector() as (found, target):
        async with EmbeddedBroker(settings=settings(target, metricsInDelta="true")) as broker:
            for _ in range(3):
                await _send(broker, 2)
                seen = len(found.requests)
                await eventually(lambda seen=seen: len(found.requests) > seen + 1, "two more exports")  # type: ignore[misc]
        values = [value_of(point) for point in found.points("cometmq_put_messages")]
        assert sum(values) == 6
        assert values.count(0) > 0, "an export without news has nothing to add"


async def test_a_collector_that_is_away_is_said_once_and_found_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """B13: the broker works on."""
    caplog.set_level(logging.INFO, "cometmq.metrics")
    quick = {"metricGrpcExporterTimeOutInMills": "200"}
    async with EmbeddedBroker(settings=settings("127.0.0.1:1", **quick)) as broker:
        await _send(broker, 1)
        await eventually(lambda: "metrics are not exported" in caplog.text, "the failure is said")
        await _send(broker, 1)
    assert caplog.text.count("metrics are not exported: the collector 127.0.0.1:1 did not take them") == 1


async def test_metrics_are_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """B13: metricsExporterType=LOG."""
    caplog.set_level(logging.INFO, "cometmq.metrics")
    wanted = {"metricsExporterType": "LOG", "metricLoggingExporterIntervalInMills": "100"}
    async with EmbeddedBroker(settings=wanted) as broker:
        await _send(broker, 2)
        # Not the text of the log: pyspark, once it is imported, has root handlers write JSON.
        await eventually(
            lambda: any('"rocketmq_messages_in"' in each.getMessage() for each in caplog.records),
            "the metric is logged",
        )
    records = [record.getMessage() for record in caplog.records if record.name == "cometmq.metrics"]
    lines = [json.loads(text) for text in records]
    counts = [line for line in lines if line["metric"] == "rocketmq_messages_in"]
    assert (counts[-1]["type"], counts[-1]["labels"]["topic"], counts[-1]["value"]) == (
        "counter",
        "orders",
        2,
    )
    latency = next(line for line in lines if line["metric"] == "rocketmq_rpc_latency_milliseconds")
    assert sum(latency["counts"]) == latency["count"] > 0
    assert len(latency["counts"]) == len(latency["bounds"]) + 1


async def test_a_target_is_asked_for() -> None:
    with pytest.raises(SettingsError, match="metricsGrpcExporterTarget is empty"):
        async with EmbeddedBroker(settings=settings("")):
            pass
