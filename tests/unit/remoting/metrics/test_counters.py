"""The counters of an endpoint."""

from __future__ import annotations

from cometmq.remoting.metrics.counters import RemotingMetrics
from cometmq.wire.codes import ResponseCode


def test_a_snapshot_has_everything_and_changes_no_more() -> None:
    metrics = RemotingMetrics()
    metrics.accepted = 3
    metrics.count_closed("idle")
    metrics.of(105).requests += 2
    metrics.of(105).count_failure(ResponseCode.TOPIC_NOT_EXIST)
    metrics.of(105).count_late(ResponseCode.SUCCESS, 0.002)
    metrics.of(105).count_late(ResponseCode.SUCCESS, 5.0, is_held=True)
    snapshot = metrics.snapshot()
    assert snapshot == metrics
    metrics.of(105).count_failure(ResponseCode.TOPIC_NOT_EXIST)
    metrics.of(105).count_late(ResponseCode.SUCCESS, 0.002)
    metrics.of(106).requests += 1
    metrics.count_closed("idle")
    assert snapshot.codes.keys() == {105}
    assert snapshot.codes[105].failures == {17: 1}
    assert snapshot.codes[105].late_times[0].latencies == [0, 1, *[0] * 8]
    assert snapshot.codes[105].held_times[0].latencies == [*[0] * 9, 1]
    assert snapshot.closed == {"idle": 1}
    assert (snapshot.accepted, snapshot.codes[105].requests) == (3, 2)
