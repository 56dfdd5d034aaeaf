"""`cometmq bench spark` on the session of the tests."""

from __future__ import annotations

from tests.integration.cli.cli_kit import Cometmq
from tests.spark.live_kit import Live


def test_every_run_of_spark_reads_the_same_messages(live: Live) -> None:
    """D1: as many as were asked for."""
    topic = live.topic(queues=2)
    live.send_numbers(topic, range(100, 300))
    cometmq = Cometmq(live.rocketmq.namesrv)

    found = cometmq.ok(
        *("bench", "spark", "-t", topic, "--rows", "150", "--runs", "2"),
        *("--option", "minPartitions=2", "--json"),
    ).json

    assert (found["topic"], found["rows"], found["bytes"]) == (topic, 150, 450)
    assert found["partitions"] >= 2
    assert len(found["runs"]) == 2
    assert found["rowsPerSecond"] == min(each["rowsPerSecond"] for each in found["runs"]) > 0


def test_a_topic_without_messages_cannot_be_measured(live: Live) -> None:
    topic = live.topic()
    cometmq = Cometmq(live.rocketmq.namesrv)
    empty, missing = (cometmq("bench", "spark", "-t", name) for name in (topic, "nowhere"))
    assert (empty.code, missing.code) == (4, 4)
    assert empty.err == (
        f"error: topic {topic} is empty; send something first, such as: "
        f"cometmq bench producer --topic {topic}\n"
    )
    assert missing.err.startswith("error: there is no topic nowhere; ")
