"""Questions to topics: `sql`, `traces` and `dead-letters`."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from cometmq import Message, Producer
from cometmq.client.trace.records import ConsumeBegan, ConsumeEnded, ConsumeOutcome, SendTrace, encode_record
from cometmq.model.errors import NotFoundError, SettingsError
from cometmq.model.names import DLQ_PREFIX, TRACE_TOPIC
from cometmq.spark.pipelines.dead_letters import DeadLettersJob, dead_letters
from cometmq.spark.pipelines.sql import Rows, SqlJob, sql
from cometmq.spark.pipelines.traces import TracesJob, traces
from cometmq.testing.embedded import EmbeddedBroker
from tests.integration.cli.cli_kit import make_dead_letters
from tests.spark.live_kit import Live
from tests.spark.sink_kit import bodies


def job(live: Live, query: str, **settings: object) -> SqlJob:
    return SqlJob(namesrv_addr=live.rocketmq.namesrv, query=query, **settings)  # type: ignore[arg-type]


def unexpected(rows: Rows) -> None:
    raise AssertionError(rows)


def test_topics_are_tables_of_a_query(live: Live) -> None:
    """D1: two of them joined, and the first rows shown."""
    one, two = live.topic(), live.topic()
    live.send_numbers(one, range(10))
    live.send_numbers(two, range(5, 15))
    shown: list[Rows] = []
    query = f"SELECT CAST(a.text AS INT) AS n FROM `{one}` a JOIN `{two}` b ON a.text = b.text ORDER BY n"

    sql(live.spark, job(live, query, limit=3), shown.append)

    assert shown == [Rows(["n"], [[5], [6], [7]], is_cut=True)]


def test_a_result_goes_to_a_topic_as_json(live: Live) -> None:
    """D1"""
    topic, target = live.topic(), live.topic(queues=1)
    live.send_numbers(topic, range(4))
    query = f"SELECT text, queueId >= 0 AS ok FROM `{topic}` WHERE text = '3'"
    answer = sql(live.spark, job(live, query, to_topic=target), unexpected)
    assert answer is not None
    assert [json.loads(body) for body in bodies(live.rocketmq, target)] == [{"text": "3", "ok": True}]


def test_a_stream_writes_files_and_goes_on_where_it_was(live: Live, tmp_path: Path) -> None:
    """D1"""
    topic = live.topic()
    live.send_numbers(topic, range(4))
    settings = {"stream": True, "once": True, "output": str(tmp_path / "out"), "format": "json"}
    asked = job(live, f"SELECT text FROM `{topic}`", **settings)
    sql(live.spark, asked, unexpected)
    live.send_numbers(topic, range(4, 6))
    answer = sql(live.spark, asked, unexpected)
    assert answer is not None
    assert answer.rows == 2
    rows = live.spark.read.json(str(tmp_path / "out")).collect()
    assert sorted(row.text for row in rows) == ["0", "1", "2", "3", "4", "5"]


def test_what_a_query_gets_wrong_is_one_sentence(live: Live) -> None:
    topic = live.topic()
    with pytest.raises(NotFoundError, match=f"there is no topic {topic}x; did you mean {topic}"):
        sql(live.spark, job(live, f"SELECT * FROM `{topic}x`"), unexpected)
    with pytest.raises(SettingsError, match="the query is not understood"):
        sql(live.spark, job(live, "SELEKT 1"), unexpected)
    with pytest.raises(SettingsError, match=r"the query does not work: .*wrong"):
        sql(live.spark, job(live, f"SELECT wrong FROM `{topic}`"), unexpected)


def sent(number: int, cost_ms: int, *, success: bool = True) -> SendTrace:
    return SendTrace(
        timestamp_ms=1_000_000 + number,
        region_id="r",
        group="shop",
        topic="orders",
        msg_id=f"id-{number}",
        tags=None,
        keys=None,
        store_host="127.0.0.1:1",
        body_length=1,
        cost_ms=cost_ms,
        message_type=0,
        offset_msg_id="o" if success else None,
        success=success,
    )


def consumed(number: int, outcome: ConsumeOutcome) -> tuple[ConsumeBegan, ConsumeEnded]:
    began = ConsumeBegan(
        timestamp_ms=1_000_020 + number,
        region_id=None,
        group="billing",
        request_id=f"request-{number}",
        msg_id=f"id-{number}",
        retry_times=0,
        keys=None,
    )
    ended = ConsumeEnded(
        request_id=began.request_id,
        msg_id=began.msg_id,
        cost_ms=5,
        success=outcome is ConsumeOutcome.SUCCESS,
        keys=None,
        outcome=outcome,
        timestamp_ms=None,
        group=None,
    )
    return began, ended


def test_attempts_are_the_calls_of_listeners(live: Live) -> None:
    """C5: a message that failed once was tried once."""
    with EmbeddedBroker() as rocketmq:
        make_dead_letters(rocketmq.namesrv, "failing", "orders", [Message("orders", b"x")])
        (line,) = dead_letters(live.spark, DeadLettersJob(namesrv_addr=rocketmq.namesrv)).lines
    assert (line.group, line.topic, line.count, line.most_attempts) == ("failing", "orders", 1, 1)


def test_traces_and_dead_letters_say_what_fails_and_how_long_things_take(live: Live) -> None:
    """C5: of clients that write traces, and of groups that have dead letters."""
    with (
        EmbeddedBroker() as rocketmq,
        Producer("spark-tests", namesrv=rocketmq.namesrv) as producer,
    ):
        nothing = dead_letters(live.spark, DeadLettersJob(namesrv_addr=rocketmq.namesrv))
        with pytest.raises(NotFoundError, match="there are no traces"):
            traces(live.spark, TracesJob(namesrv_addr=rocketmq.namesrv, trace_topic="untraced"))
        records = [sent(number, number + 1) for number in range(10)] + [sent(10, 900, success=False)]
        lines = [encode_record(record) for record in records]
        for number in range(10):
            outcome = ConsumeOutcome.EXCEPTION if number == 3 else ConsumeOutcome.SUCCESS
            lines += [encode_record(record) for record in consumed(number, outcome)]
        rocketmq.call(rocketmq.create_topic(TRACE_TOPIC, queues=1))
        producer.send(Message(TRACE_TOPIC, "".join(lines).encode()))
        rocketmq.call(rocketmq.create_topic(DLQ_PREFIX + "billing", queues=1))
        receipt = producer.send(Message(DLQ_PREFIX + "billing", b"x"))
        tried = msgspec.structs.replace(
            consumed(11, ConsumeOutcome.FAILED)[0], msg_id=receipt.msg_id, retry_times=2
        )
        producer.send(Message(TRACE_TOPIC, encode_record(tried).encode()))

        found = traces(live.spark, TracesJob(namesrv_addr=rocketmq.namesrv))
        letters = dead_letters(live.spark, DeadLettersJob(namesrv_addr=rocketmq.namesrv))

    assert nothing.messages == 0
    (sends,) = found.sends
    assert (sends.topic, sends.group, sends.count, sends.failed, sends.longest) == (
        "orders",
        "shop",
        11,
        1,
        900,
    )
    assert sends.p50 == 6
    (delivery,) = found.deliveries
    assert (delivery.topic, delivery.group, delivery.count, delivery.p50) == ("orders", "billing", 10, 20)
    (consumption,) = found.consumptions
    assert (consumption.topic, consumption.count, consumption.failed, consumption.p99) == ("orders", 10, 1, 5)
    (failure,) = found.failures
    assert (failure.group, failure.outcome, failure.msg_id) == ("billing", "exception", "id-3")
    (line,) = letters.lines
    assert (line.group, line.count, line.reason, line.msg_id) == ("billing", 1, "unknown", receipt.msg_id)
    assert line.most_attempts == 3
