"""What tasks send, and what is stored of it: at least once, and exactly once (D2)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from cometmq.client.producer.queue_selection import by_hash
from cometmq.model.errors import CometError, MessageError, SendError
from cometmq.model.queue import MessageQueue
from cometmq.spark.sink.exactly_once import WriteId
from cometmq.testing.embedded import EmbeddedBroker
from tests.compat.apache import CometBroker, CometNamesrv
from tests.spark.sink_kit import TaskKit, bodies, numbered, records, rows, tasks

_names = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings={"messageDelayLevel": "1s 2s", "timerPrecisionMs": "100"}) as running:
        yield running


@pytest.fixture(scope="module")
def kit(broker: EmbeddedBroker) -> Iterator[TaskKit]:
    with tasks(broker.namesrv) as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    name = f"Sink{next(_names)}"
    broker.call(broker.create_topic(name, queues=4))
    return name


def named(batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    """The same rows for a topic."""
    return batch.append_column("topic", pa.array([topic] * batch.num_rows))


def numbers(broker: EmbeddedBroker, topic: str) -> list[int]:
    return sorted(int(body) for body in bodies(broker, topic))


# Rows

TEXT = pa.map_(pa.string(), pa.string())


def test_every_column_is_in_the_message(broker: EmbeddedBroker, kit: TaskKit, topic: str) -> None:
    """D2."""
    batch = rows(
        body=pa.array([b"one", b"two", b"three"]),
        tags=["paid", None, ""],
        keys=pa.array([["a", "b"], None, []], pa.list_(pa.string())),
        properties=pa.array(
            [[("großer", "Wert"), ("UNIQ_KEY", "x")], None, [("empty", ""), ("n", None)]], TEXT
        ),
        shardingKey=["k", None, None],
    )
    kit.write(None, named(batch, topic))
    found = {bytes(record.body): record.properties() for record in records(broker, topic)}
    first = found[b"one"]
    assert (first["TAGS"], first["KEYS"], first["großer"], first["__SHARDINGKEY"]) == (
        "paid",
        "a b",
        "Wert",
        "k",
    )
    assert len(first["UNIQ_KEY"]) == 32
    for body in (b"two", b"three"):
        assert found[body].keys() & {"TAGS", "KEYS", "__SHARDINGKEY", "empty", "n"} == set()
    assert len({each["UNIQ_KEY"] for each in found.values()}) == 3


def test_without_unique_keys_messages_have_none(broker: EmbeddedBroker, topic: str) -> None:
    with tasks(broker.namesrv, {"uniqueKeys": "false"}) as kit:
        kit.write(None, named(rows(body=["a"]), topic), named(rows(body=["b"], tags=["t"]), topic))
    found = {bytes(record.body): record.properties() for record in records(broker, topic)}
    assert "UNIQ_KEY" not in found[b"a"]
    assert found[b"b"]["TAGS"] == "t"


def test_slices_of_a_batch_have_their_own_rows(broker: EmbeddedBroker, kit: TaskKit, topic: str) -> None:
    """Arrow slices share their buffers with the whole."""
    batch = rows(
        body=pa.array([f"{number}" for number in range(100)]),
        keys=pa.array([[f"k{number}"] for number in range(100)], pa.list_(pa.string())),
        properties=pa.array([[("p", f"{number}")] for number in range(100)], TEXT),
    )
    kit.write(None, named(batch.slice(40, 20), topic))
    for record in records(broker, topic):
        number = bytes(record.body).decode()
        assert (record.properties()["KEYS"], record.properties()["p"]) == (f"k{number}", number)
    assert numbers(broker, topic) == list(range(40, 60))


def test_more_rows_than_a_request_takes_come_in_order(
    broker: EmbeddedBroker, kit: TaskKit, topic: str
) -> None:
    kit.write(None, named(numbered(0, 20_000), topic))
    assert numbers(broker, topic) == list(range(20_000))
    by_queue: dict[int, list[int]] = {}
    for record in records(broker, topic):
        by_queue.setdefault(record.queue_id, []).append(int(bytes(record.body)))
    assert all(found == sorted(found) for found in by_queue.values())
    assert len(by_queue) == 4


def test_bodies_of_a_megabyte(broker: EmbeddedBroker, kit: TaskKit, topic: str) -> None:
    large = [bytes([number]) * (1 << 20) for number in range(12)]
    kit.write(None, named(rows(body=pa.array(large)), topic))
    assert sorted(bodies(broker, topic)) == large


def test_a_topic_in_each_row(broker: EmbeddedBroker, kit: TaskKit) -> None:
    for name in ("Some", "Other"):
        broker.call(broker.create_topic(name, queues=1))
    kit.write(None, rows(body=["1", "2", "3"], topic=["Some", "Other", "Some"]))
    assert (bodies(broker, "Some"), bodies(broker, "Other")) == ([b"1", b"3"], [b"2"])


def test_a_sharding_key_has_the_queue_that_java_gives_it(
    broker: EmbeddedBroker, kit: TaskKit, topic: str
) -> None:
    keys = [f"key-{number % 7}" for number in range(1000)]
    batch = rows(body=[f"{number}" for number in range(1000)], shardingKey=keys)
    kit.write(None, named(batch, topic))
    queues = [MessageQueue(topic, "embedded", number) for number in range(4)]
    seen: dict[str, list[int]] = {}
    for record in records(broker, topic):
        key = record.properties()["__SHARDINGKEY"]
        assert record.queue_id == by_hash(queues, None, key).queue_id
        seen.setdefault(key, []).append(int(bytes(record.body)))
    assert all(found == sorted(found) for found in seen.values())
    assert sum(map(len, seen.values())) == 1000


def test_a_queue_id_names_the_queue(broker: EmbeddedBroker, kit: TaskKit, topic: str) -> None:
    batch = rows(body=["a", "b", "c"], queueId=pa.array([3, 1, 3], pa.int32()))
    kit.write(None, named(batch, topic))
    assert [(each.queue_id, bytes(each.body)) for each in records(broker, topic)] == [
        (1, b"b"),
        (3, b"a"),
        (3, b"c"),
    ]
    with pytest.raises(MessageError, match=r"queueId 9, and topic .* has queues up to 3"):
        kit.write(None, named(rows(body=["a"], queueId=pa.array([9], pa.int32())), topic))


def test_delayed_rows_come_when_they_are_due(broker: EmbeddedBroker, kit: TaskKit, topic: str) -> None:
    level = pa.array([None, 1, 0], pa.int32())
    kit.write(None, named(rows(body=["now", "later", "too"], delayLevel=level), topic))
    times = pa.array([None, broker.broker.context.clock.now_ms() + 1500], pa.int64())
    kit.write(None, named(rows(body=["3", "timed"], deliverTimestamp=times), topic))
    assert sorted(bodies(broker, topic)) == [b"3", b"now", b"too"]
    arrived = threading.Event()
    for _ in range(1000):
        if len(bodies(broker, topic)) == 5:
            break
        arrived.wait(0.01)
    assert sorted(bodies(broker, topic)) == [b"3", b"later", b"now", b"timed", b"too"]


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (rows(body=pa.array([b"a", None])), "no body"),
        (rows(body=["a", ""]), "empty body"),
        (rows(body=["a"], tags=["x\x02y"]), "tags contains a separator"),
        (rows(body=["a"], keys=pa.array([["x y"]])), "contains a blank"),
        (rows(body=["a"], keys=pa.array([["x", None]])), "a key that is null"),
        (rows(body=["a"], properties=pa.array([[("n", "a\x01b")]], TEXT)), "value of a property contains"),
        (rows(body=["a"], properties=pa.array([[("n", "v" * 40_000)]], TEXT)), "properties of a row take"),
        (rows(body=["a" * 5_000_000]), "over maxMessageSize"),
        (rows(body=["a"], queueId=pa.array([-1])), "queueId below 0"),
        (rows(body=["a"], delayLevel=pa.array([-1])), "delayLevel below 0"),
        (rows(body=["a"], topic=pa.array(["no topic!"])), "'no topic!'"),
    ],
)
def test_a_row_that_no_broker_takes_is_refused(kit: TaskKit, batch: pa.RecordBatch, reason: str) -> None:
    with pytest.raises(MessageError, match=reason):
        kit.write(None, batch)


def test_what_a_broker_refuses_fails_with_its_reason(broker: EmbeddedBroker, topic: str) -> None:
    """D2."""
    with tasks(broker.namesrv, {"maxMessageSize": "8000000"}) as kit:
        batch = named(rows(body=["a" * 5_000_000]), topic)
        with pytest.raises(SendError, match="msg body length limit 4194304B"):
            kit.write(None, batch)
        with pytest.raises(CometError, match="msg body length limit 4194304B"):
            kit.write(WriteId("q", 0, 0), batch)
    assert bodies(broker, topic) == []


# Exactly once

MIXED = rows(
    body=[f"{number}" for number in range(300)],
    shardingKey=[None if number % 3 else f"key-{number % 7}" for number in range(300)],
    deliverTimestamp=pa.array([1 if number % 100 == 50 else None for number in range(300)], pa.int64()),
)


def test_an_attempt_after_a_whole_one_stores_nothing(
    broker: EmbeddedBroker, kit: TaskKit, topic: str
) -> None:
    """D2: a driver that died before it could note that the batch is written."""
    batch, write = named(MIXED, topic), WriteId("whole", 4, 0)
    assert kit.write(write, batch) == 0
    assert kit.write(write, batch) == 300
    assert numbers(broker, topic) == list(range(300))


def test_an_attempt_goes_on_where_another_ended(broker: EmbeddedBroker, kit: TaskKit, topic: str) -> None:
    """D2: a task that failed midway; ids of messages are the same at every attempt."""
    write = WriteId("midway", 0, 3)
    first = kit.attempt(write)
    kit.put(first, named(numbered(0, 700), topic))
    first.finish()
    before = {bytes(each.body): each.properties()["UNIQ_KEY"] for each in records(broker, topic)}
    assert kit.write(write, named(numbered(0, 300), topic), named(numbered(300, 2000), topic)) == 700
    assert numbers(broker, topic) == list(range(2000))
    after = {bytes(each.body): each.properties()["UNIQ_KEY"] for each in records(broker, topic)}
    assert before.items() <= after.items()
    assert len(set(after.values())) == 2000


def test_attempts_at_the_same_time_store_every_row_once(
    broker: EmbeddedBroker, kit: TaskKit, topic: str
) -> None:
    """D2: speculative execution; the second one cuts its rows otherwise."""
    write = WriteId("speculative", 0, 0)
    attempts = [kit.attempt(write), kit.attempt(write)]
    for at in range(0, 3000, 600):
        kit.put(attempts[0], named(numbered(at, at + 600), topic))
        for half in (at, at + 300):
            kit.put(attempts[1], named(numbered(half, half + 300), topic))
    for attempt in reversed(attempts):
        attempt.finish()
    assert numbers(broker, topic) == list(range(3000))


def test_a_late_attempt_of_an_earlier_batch_stores_nothing(
    broker: EmbeddedBroker, kit: TaskKit, topic: str
) -> None:
    late = kit.attempt(WriteId("late", 1, 0))
    kit.put(late, named(numbered(0, 10), topic))
    late.finish()
    kit.write(WriteId("late", 2, 0), named(numbered(10, 20), topic))
    kit.put(late, named(numbered(20, 30), topic))
    late.finish()
    assert kit.write(WriteId("late", 1, 0), named(numbered(0, 10), topic)) == 10
    assert numbers(broker, topic) == list(range(20))


def test_other_rows_than_at_the_first_attempt_are_refused(
    broker: EmbeddedBroker, kit: TaskKit, topic: str
) -> None:
    """Rather than lost or doubled."""
    write = WriteId("other", 0, 0)
    kit.write(write, named(numbered(0, 100), topic))
    with pytest.raises(MessageError, match=r"others, or another order.*sort them"):
        kit.write(write, named(numbered(1, 101), topic))
    with pytest.raises(MessageError, match="this try has 50"):
        kit.write(write, named(numbered(0, 50), topic))
    with pytest.raises(CometError, match="others, or another order"):
        kit.write(write, named(numbered(1, 102), topic))
    assert numbers(broker, topic) == list(range(100))


def test_keys_keep_their_queues_when_a_topic_gets_more_of_them_in_between(
    broker: EmbeddedBroker, kit: TaskKit, topic: str
) -> None:
    keyed = rows(body=[f"{at}" for at in range(900)], shardingKey=[f"k{at % 11}" for at in range(900)])
    write = WriteId("wider", 0, 0)
    kit.write(write, named(keyed.slice(0, 500), topic))
    broker.call(broker.create_topic(topic, queues=8))
    with tasks(broker.namesrv) as fresh:
        # The same batches as before: how rows are cut into batches is part of their order.
        fresh.write(write, named(keyed.slice(0, 500), topic), named(keyed.slice(500), topic))
    assert numbers(broker, topic) == list(range(900))
    assert {record.queue_id for record in records(broker, topic)} <= set(range(4))


def test_a_broker_that_restarts_gets_every_row_once(tmp_path: Path) -> None:
    """D2: in the middle of an attempt, twice."""
    with EmbeddedBroker(tmp_path) as broker:
        broker.call(broker.create_topic("T", queues=2))
        with tasks(broker.namesrv) as kit:
            attempt = kit.attempt(WriteId("restart", 0, 0))
            for at in range(0, 30_000, 5000):
                kit.put(attempt, numbered(at, at + 5000))
                if at in (5000, 20_000):
                    broker.call(broker.restart())
            attempt.finish()
            assert numbers(broker, "T") == list(range(30_000))


SMALL_INDEX = {"maxHashSlotNum": "5000", "maxIndexNum": "20000"}
"""As an embedded broker has it, which looks at the store afterwards."""


@pytest.mark.timeout(120)
def test_a_broker_that_is_killed_has_every_row_once(tmp_path: Path) -> None:
    """D2, B4: kill -9 with requests under way, in a first attempt and in one that goes on."""
    with (
        CometNamesrv(tmp_path / "namesrv") as namesrv,
        CometBroker(tmp_path / "broker", namesrv.address, "killed", SMALL_INDEX) as server,
        tasks(namesrv.address, {"retryTimeoutMs": "90000"}) as kit,
        ThreadPoolExecutor(1) as starting,
    ):
        started: list[Future[CometBroker]] = []

        def write(batch: int, upto: int, killed_at: int | None = None) -> None:
            sends = kit.attempt(WriteId("killed", batch, 0))
            for at in range(0, upto, 200):
                kit.put(sends, numbered(batch * 6000 + at, batch * 6000 + at + 200))
                if at == killed_at:
                    server.kill()
                    started.append(starting.submit(server.start))
            sends.finish()

        write(0, 6000, killed_at=3000)
        write(0, 6000)
        write(1, 2000)
        write(1, 6000, killed_at=4000)
        for each in started:
            each.result()
        server.stop()
        with EmbeddedBroker(tmp_path / "copy", settings=store_of(tmp_path / "broker")) as reader:
            assert numbers(reader, "T") == list(range(12_000))


def store_of(home: Path) -> dict[str, str]:
    """The settings with which an embedded broker opens the store of a stopped one."""
    return {
        "storePathRootDir": str(home / "store"),
        "storePathCommitLog": str(home / "store" / "commitlog"),
        "mappedFileSizeConsumeQueue": "600000",
    }


def test_a_broker_that_is_away_is_waited_for_and_not_passed_over(tmp_path: Path) -> None:
    """D2: with two brokers, the other one must not get what the first may have already."""
    with (
        EmbeddedBroker(tmp_path / "a", settings={"brokerName": "a"}) as first,
        EmbeddedBroker(tmp_path / "b", settings={"brokerName": "b"}, namesrv=first.namesrv) as second,
    ):
        for broker in (first, second):
            broker.call(broker.create_topic("T", queues=2))
        write = WriteId("two", 0, 0)
        with tasks(first.namesrv, {"retryTimeoutMs": "0"}) as kit:
            kit.write(write, numbered(0, 100))
            kit.write(WriteId("two", 0, 1), numbered(100, 200))
            assert (numbers(first, "T"), numbers(second, "T")) == (list(range(100)), list(range(100, 200)))
        first.call(first.stop_broker())
        with tasks(first.namesrv, {"retryTimeoutMs": "0"}) as kit:
            with pytest.raises(CometError, match="broker a is away, and may have messages of this write"):
                kit.write(write, numbered(0, 200))
            assert numbers(second, "T") == list(range(100, 200))
        first.call(first.start())
        with tasks(first.namesrv) as kit:
            assert kit.write(write, numbered(0, 100)) == 100
        assert numbers(first, "T") == list(range(100))
