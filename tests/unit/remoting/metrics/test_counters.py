"""The counters of an endpoint."""

from __future__ import annotations

from cometmq.remoting.metrics.counters import RemotingMetrics
from cometmq.wire.codes import ResponseCode


def test_requests_are_counted_by_code_and_answers_by_how_they_came() -> None:
    metrics = RemotingMetrics()
    metrics.count_closed("idle")
    metrics.of(105).requests += 2
    metrics.of(105).count_failure(ResponseCode.TOPIC_NOT_EXIST)
    metrics.of(105).count_late(ResponseCode.SUCCESS, 0.002)
    metrics.of(105).count_late(ResponseCode.SUCCESS, 5.0, is_held=True)
    assert metrics.codes.keys() == {105}
    assert metrics.codes[105].requests == 2
    assert metrics.codes[105].failures == {17: 1}
    assert metrics.codes[105].late_times[0].latencies == [0, 1, *[0] * 8]
    assert metrics.codes[105].held_times[0].latencies == [*[0] * 9, 1]
    assert metrics.closed == {"idle": 1}
