"""Messages that are sent once more: `replay` and `mirror`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from cometmq import Message
from cometmq.model.errors import SettingsError
from cometmq.model.queue import MessageQueue
from cometmq.spark.pipelines import replay as module
from cometmq.spark.pipelines.archive.job import ArchiveJob, archive
from cometmq.spark.pipelines.copy import COPIED_FROM
from cometmq.spark.pipelines.mirror import MirrorJob, mirror
from cometmq.spark.pipelines.replay import ReplayJob, replay
from cometmq.spark.pipelines.run.files import Files
from cometmq.spark.pipelines.run.streams import Progress
from cometmq.testing.embedded import EmbeddedBroker
from tests.spark.live_kit import Live, numbers
from tests.spark.sink_kit import bodies, records


def job(live: Live, folder: Path, **settings: object) -> ReplayJob:
    given = {"namesrv_addr": live.rocketmq.namesrv, "checkpoint": str(folder / "checkpoint"), **settings}
    return ReplayJob(**given)  # type: ignore[arg-type]


def copied(live: Live, topic: str) -> list[int]:
    return sorted(map(int, bodies(live.rocketmq, topic)))


def test_a_replay_that_was_interrupted_goes_on_with_what_was_not_sent(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D1: a time range of a topic, slowly, in the order of the messages, each of them once."""
    topic, target = live.topic(queues=2), live.topic(queues=1)
    live.send_numbers(topic, range(5))
    live.send(Message(topic, b"5", tags="t", keys=["k"], properties={"a": "ä"}))
    live.send_numbers(topic, range(6, 20))
    begin = live.table(topic).where("CAST(body AS STRING) = '5'").selectExpr("unix_millis(storeTimestamp) t")
    start = str(begin.collect()[0].t)
    asked = job(live, tmp_path, topics=(topic,), start=start, to_topic=target, rate=1000)
    monkeypatch.setattr(module, "RATED_STEP_S", 0.01)

    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    interrupted = replay(live.spark, asked, interrupt)
    live.rocketmq.call(live.rocketmq.create_topic(topic, queues=3))
    for queue_id in range(3):  # the last one is a queue that the plan does not know
        live.producer.send(Message(topic, b"99"), queue=MessageQueue(topic, "embedded", queue_id))
    done = replay(live.spark, asked)

    planned = live.table(topic).where("CAST(body AS STRING) <> '99'")
    expected = numbers(planned.where(f"unix_millis(storeTimestamp) >= {start}"))
    assert expected[-15:] == list(range(5, 20))
    assert interrupted.interrupted
    assert 0 < interrupted.rows < len(expected)
    assert (done.rows, done.batches) == (len(expected), done.steps)
    assert copied(live, target) == expected
    copy = next(record for record in records(live.rocketmq, target) if bytes(record.body) == b"5")
    assert copy.properties()["a"] == "ä"
    assert copy.properties()[COPIED_FROM].startswith(f"{topic}@embedded:")
    assert (copy.properties()["TAGS"], copy.properties()["KEYS"]) == ("t", "k")
    assert replay(live.spark, asked).rows == len(expected), "what is done stays done"
    other = job(live, tmp_path, topics=(topic,), to_topic=live.topic())
    with pytest.raises(SettingsError, match="belongs to another replay"):
        replay(live.spark, other)


def test_a_step_that_was_sent_and_not_noted_is_not_stored_again(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D1: an archive, killed behind the sending of a step."""
    topic, target = live.topic(queues=2), live.topic(queues=2)
    live.send_numbers(topic, range(40))
    folder = str(tmp_path / "archive")
    archive(live.spark, ArchiveJob(namesrv_addr=live.rocketmq.namesrv, topics=(topic,), output=folder))
    asked = job(live, tmp_path, archive=folder, to_topic=target)

    write = Files.write

    def killed(files: Files, path: str, text: str) -> None:
        if "/done/" in path:
            raise KeyboardInterrupt
        write(files, path, text)

    with monkeypatch.context() as broken:
        broken.setattr(Files, "write", killed)
        assert replay(live.spark, asked).interrupted
    assert copied(live, target) == list(range(40))

    done = replay(live.spark, asked)

    assert (done.rows, done.interrupted) == (40, False)
    assert copied(live, target) == list(range(40))


def test_a_mirror_makes_topics_and_keeps_queues_and_their_order(live: Live, tmp_path: Path) -> None:
    """D1: from one cluster to another."""
    topic = live.topic(queues=3)
    for number in range(30):
        live.send(Message(topic, b"%d" % number, properties={"n": str(number)}))
    with EmbeddedBroker(settings={"autoCreateTopicEnable": "false"}) as other:
        asked = MirrorJob(
            namesrv_addr=live.rocketmq.namesrv,
            topics=(topic,),
            to_namesrv_addr=other.namesrv,
            prefix="copy-",
            checkpoint=str(tmp_path),
            once=True,
        )
        first = mirror(live.spark, asked)
        live.send_numbers(topic, range(30, 40))
        second = mirror(live.spark, asked)

        assert (first.rows, first.made_topics) == (30, [f"copy-{topic}"])
        assert (second.rows, second.made_topics) == (10, [])
        here, there = records(live.rocketmq, topic), records(other, f"copy-{topic}")
        assert [(each.queue_id, bytes(each.body)) for each in there] == [
            (each.queue_id, bytes(each.body)) for each in here
        ]
        assert Counter(each.queue_id for each in there).keys() == {0, 1, 2}


def test_a_mirror_onto_itself_is_refused() -> None:
    with pytest.raises(SettingsError, match="both clusters are the same one"):
        MirrorJob(namesrv_addr="a:1", topics=("T",), to_namesrv_addr="a:1", checkpoint="c")
