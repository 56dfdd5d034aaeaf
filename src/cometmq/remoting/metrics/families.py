"""Prometheus metric families with the labels of their server and a limited number of series.

Rules kept here:
- Everything happens on the thread of a scrape. It rests after every 50 samples, so that the event loop never
  waits long for the interpreter.
- A metric has at most `most_series` series. `cometmq_left_out_series` counts the others, by metric.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from cometmq.model.histogram import Histogram

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric
    from prometheus_client.samples import Sample

T = TypeVar("T")
Labels = Mapping[str, str]

MOST_SERIES: Final = 50_000
_LEFT_OUT: Final = "cometmq_left_out_series"
_AT_ONCE: Final = 50
_REST_S: Final = 0.0002


class Ranges(NamedTuple):
    """The content of a histogram: upper bounds of all ranges but the last, counts, and sum."""

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float


def ranges_of(histogram: Histogram) -> Ranges:
    return Ranges(histogram.bounds, list(histogram.counts), histogram.total)


def paced(items: Iterable[T]) -> Iterator[T]:
    """Yields the items with a rest for other threads after every few."""
    for number, item in enumerate(items, 1):
        yield item
        if number % _AT_ONCE == 0:
            time.sleep(_REST_S)


class LazySamples(list["Sample"]):
    """The samples of a metric, made while they are written; can be read once.

    A list would be hundreds of thousands of objects, and garbage collection would stop all threads.
    """

    def __init__(self, samples: Iterator[Sample]) -> None:
        super().__init__()
        self._samples = samples

    def __iter__(self) -> Iterator[Sample]:
        return paced(self._samples)


class Families:
    """Makes the metrics of one scrape."""

    def __init__(self, node: Labels, most_series: int = MOST_SERIES) -> None:
        self._node = dict(node)
        self._most = most_series
        self._left_out: dict[str, int] = {}

    def gauge(self, name: str, what: str, samples: Iterable[tuple[Labels, float]]) -> Metric:
        return _metric(name, what, "gauge", self._plain(name, name, samples))

    def counter(self, name: str, what: str, samples: Iterable[tuple[Labels, float]]) -> Metric:
        """A metric that only goes up; `name` is without `_total`."""
        return _metric(name, what, "counter", self._plain(name, f"{name}_total", samples))

    def histogram(self, name: str, what: str, samples: Iterable[tuple[Labels, Ranges]]) -> Metric:
        return _metric(name, what, "histogram", self._in_ranges(name, samples))

    def left_out(self) -> Metric:
        """The number of series left out, by metric. Comes last: the others count while they are read."""
        what = "Series beyond the limit, which are missing."
        return _metric(_LEFT_OUT, what, "gauge", self._counts_left_out())

    def _counts_left_out(self) -> Iterator[Sample]:
        from prometheus_client.samples import Sample

        for name, count in list(self._left_out.items()):
            yield Sample(_LEFT_OUT, {**self._node, "metric": name}, count)

    def leave_out(self, name: str, count: int) -> None:
        """Count missing series of a metric."""
        if count > 0:
            self._left_out[name] = self._left_out.get(name, 0) + count

    def _plain(
        self, name: str, sample_name: str, samples: Iterable[tuple[Labels, float]]
    ) -> Iterator[Sample]:
        from prometheus_client.samples import Sample

        for labels, value in self._cut(name, samples):
            yield Sample(sample_name, {**self._node, **labels}, value)

    def _in_ranges(self, name: str, samples: Iterable[tuple[Labels, Ranges]]) -> Iterator[Sample]:
        from prometheus_client.samples import Sample

        for own_labels, ranges in self._cut(name, samples):
            labels = {**self._node, **own_labels}
            count = 0
            for bound, found in zip([*map(float, ranges.bounds), math.inf], ranges.counts, strict=True):
                count += found
                le = str(bound) if bound < math.inf else "+Inf"
                yield Sample(f"{name}_bucket", {**labels, "le": le}, count)
            yield Sample(f"{name}_count", labels, count)
            yield Sample(f"{name}_sum", labels, ranges.total)

    def _cut(self, name: str, samples: Iterable[tuple[Labels, T]]) -> Iterator[tuple[Labels, T]]:
        left_out = 0
        for number, sample in enumerate(samples):
            if number < self._most:
                yield sample
            else:
                left_out += 1
        self.leave_out(name, left_out)


def _metric(name: str, what: str, kind: str, samples: Iterator[Sample]) -> Metric:
    from prometheus_client.metrics_core import Metric

    metric = Metric(name, what, kind)
    metric.samples = LazySamples(samples)
    return metric


def one(value: float, **labels: str) -> list[tuple[Labels, float]]:
    return [(labels, value)]
