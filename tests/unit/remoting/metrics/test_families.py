"""Metrics in the library's form: labels, limits, and the rests that leave the event loop its turn."""

from __future__ import annotations

import pytest
from prometheus_client.metrics_core import Metric

from cometmq.remoting.metrics.families import Families, Ranges, one


def values(metric: Metric) -> list[tuple[str, dict[str, str], float]]:
    return [(each.name, each.labels, each.value) for each in metric.samples]


def test_every_sample_has_the_labels_of_its_server() -> None:
    families = Families({"cluster": "c"})
    assert values(families.gauge("up", "", one(1, port="a"))) == [("up", {"cluster": "c", "port": "a"}, 1)]
    assert values(families.counter("sent", "", one(2))) == [("sent_total", {"cluster": "c"}, 2)]


def test_a_histogram_counts_what_is_at_most_each_bound() -> None:
    metric = Families({}).histogram("time", "", [({}, Ranges((1, 2.5), [4, 0, 2], 9.5))])
    assert values(metric) == [
        ("time_bucket", {"le": "1.0"}, 4),
        ("time_bucket", {"le": "2.5"}, 4),
        ("time_bucket", {"le": "+Inf"}, 6),
        ("time_count", {}, 6),
        ("time_sum", {}, 9.5),
    ]


def test_series_beyond_the_limit_are_left_out_and_counted() -> None:
    families = Families({}, most_series=3)
    metric = families.gauge("lag", "", (({"queue": str(number)}, number) for number in range(10)))
    left_out = families.left_out()
    assert [value for _, _, value in values(metric)] == [0, 1, 2]
    assert values(left_out) == [("cometmq_left_out_series", {"metric": "lag"}, 7)]


def test_reading_many_samples_rests_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """B13: a scrape shares the interpreter with the event loop, and must not keep it to itself."""
    made: list[int] = []
    rests: list[int] = []
    monkeypatch.setattr("cometmq.remoting.metrics.families.time.sleep", lambda _: rests.append(len(made)))

    def samples() -> object:
        for number in range(1000):
            made.append(number)
            yield {}, number

    metric = Families({}).gauge("lag", "", samples())  # type: ignore[arg-type]
    assert made == []
    assert len(values(metric)) == 1000
    gaps = [after - before for before, after in zip([0, *rests], rests, strict=False)]
    assert len(rests) >= 19
    assert max(gaps) <= 51
