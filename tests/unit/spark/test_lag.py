"""How far a query is behind, from its progress."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql.streaming.listener import SourceProgress

from cometmq.spark.lag import SKIPPED, SourceLag, lag_of


def source(end: Any, latest: Any) -> SourceProgress:
    texts = [None if each is None else json.dumps(each) for each in (end, latest)]
    fields = {"startOffset": None, "endOffset": texts[0], "latestOffset": texts[1]}
    rates = {"numInputRows": 0, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0}
    return SourceProgress.fromJson({"description": "rocketmq", **fields, **rates, "metrics": {}})


def test_a_lag_is_least_greatest_and_average_over_the_queues() -> None:
    end = {"t": {"a": {"0": 10, "1": 5}, "b": {"0": 7}}}
    latest = {"t": {"a": {"0": 10, "1": 8}}, SKIPPED: 4}  # b is away
    assert lag_of(source(end, latest)) == SourceLag(0, 3, 1.0, 3, 4)


@pytest.mark.parametrize(
    ("end", "latest"),
    [
        ({"t": {"a": {"0": 1}}}, {"t": {"a": {"0": 1}}}),  # of Spark 4.1, where the latest offset is the end
        ({"t": {"0": 1}}, {"t": {"0": 1}}),  # of Kafka
        (None, None),
        (5, 7),
    ],
)
def test_what_is_not_ours_has_none(end: Any, latest: Any) -> None:
    assert lag_of(source(end, latest)) is None
