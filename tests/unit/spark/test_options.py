"""Options: mistakes are told in a sentence before anything runs (D1)."""

from __future__ import annotations

import pickle
import re
from functools import partial
from pathlib import Path

import pytest

from cometmq.client.subscription import Sql
from cometmq.model.errors import SettingsError
from cometmq.model.queue import MessageQueue
from cometmq.spark.live.offsets import EARLIEST, LATEST
from cometmq.spark.live.options import LIVE_OPTIONS, NAMELESS_GROUP, Bound, LiveOptions, live_options
from cometmq.spark.log.options import LOG_OPTIONS
from cometmq.spark.options import KAFKA_OPTIONS, KAFKA_PREFIXES
from cometmq.spark.sink.options import SINK_OPTIONS

ROOT = Path(__file__).parents[3]
BASE = {"namesrvAddr": "127.0.0.1:9876", "topic": "orders"}


def batch(**options: str) -> LiveOptions:
    return live_options({**BASE, **options}, streaming=False)


def stream(**options: str) -> LiveOptions:
    return live_options({**BASE, **options}, streaming=True)


def test_a_batch_begins_at_the_earliest_message_and_a_stream_at_the_latest() -> None:
    assert (batch().start, batch().end) == (Bound(EARLIEST), Bound(LATEST))
    assert stream().start == Bound(LATEST)


def test_without_a_group_reading_is_done_under_that_of_tools() -> None:
    assert batch().reading_group == NAMELESS_GROUP
    assert batch(group="etl").reading_group == "etl"


def test_the_case_of_a_name_does_not_count() -> None:
    assert live_options({"NAMESRVADDR": "h:1", "Topic": "t"}, streaming=False).topics == ("t",)


def test_several_topics_are_named_with_commas() -> None:
    named = live_options({"namesrvAddr": "h:1", "topics": "b, a,b"}, streaming=False)
    assert named.topics == ("a", "b")


def test_queues_can_be_chosen() -> None:
    chosen = live_options(
        {"namesrvAddr": "h:1", "assign": '{"b": {"x": [0, 2]}, "a": {"x": [1]}}'}, streaming=True
    )
    assert chosen.topics == ("a", "b")
    queues = [MessageQueue("a", "x", 1), MessageQueue("b", "x", 0), MessageQueue("b", "x", 2)]
    assert chosen.assigned == frozenset(queues)


def test_offsets_can_be_given_by_queue() -> None:
    text = '{"orders": {"broker-a": {"0": 23, "1": -2}}}'
    assert batch(startingOffsets=text).start == Bound(
        EARLIEST,
        offsets={MessageQueue("orders", "broker-a", 0): 23, MessageQueue("orders", "broker-a", 1): -2},
    )


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-14T23:13:20.5+01:00", 1_700_000_000_500),
    ],
)
def test_a_time_is_milliseconds_or_iso_8601(text: str, time_ms: int) -> None:
    assert stream(startingTimestamp=text).start.time_ms == time_ms


def test_filters_are_tags_or_sql() -> None:
    assert batch(tags="paid || refunded").expression == "paid || refunded"
    assert batch(sql="amount > 5").expression == Sql("amount > 5")


def test_credentials_and_tls_reach_the_client() -> None:
    given = {"accessKey": "ak", "secretKey": "sk", "tls.enable": "true", "tls.client.trustCertPath": "/ca"}
    settings = batch(**given).settings
    assert (settings.access_key, settings.secret_key) == ("ak", "sk")
    assert settings.tls is not None
    assert settings.tls.trust_cert_path == "/ca"


def test_options_can_be_sent_to_workers() -> None:
    options = batch(sql="a > 1", **{"tls.enable": "true"})
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"startingOffset": "earliest"}, "no option 'startingOffset'; did you mean startingOffsets?"),
        ({"startingoffset": "earliest"}, "no option 'startingoffset'; did you mean startingOffsets?"),
        ({"qwertz": "1"}, "no option 'qwertz'; there are accessKey, "),
        ({"topics": "a,b"}, "topic and topics exclude each other"),
        ({"topic": ""}, "nothing says what to read"),
        ({"topic": "a b"}, "topic 'a b' contains something else"),
        ({"assign": "{}"}, "topic and assign exclude each other"),
        (
            {"topic": "", "assign": '{"t": [0]}'},
            'write JSON with queues such as {"topic": {"broker-a": [0, 1]}}',
        ),
        ({"topic": "", "assign": '{"t b": {"a": [0]}}'}, "topic 't b' contains something else"),
        ({"topic": "", "topicPattern": "("}, "topicPattern '(' is no regular expression"),
        ({"namesrvAddr": ""}, "namesrvAddr is missing"),
        ({"group": "a b"}, "group 'a b' contains something else"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is '0'; it has to be a whole number"),
        ({"minPartitions": "few"}, "minPartitions is 'few'; it has to be a whole number"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss is 'perhaps'; it has to be true or false"),
        ({"startingOffsets": "soon"}, "startingOffsets is 'soon'; write earliest, latest, or JSON"),
        ({"startingOffsets": '{"t": {"b": {"0": -7}}}'}, "startingOffsets has -7 for t@b:0"),
        ({"startingOffsets": "latest"}, "a batch that starts at the latest offsets is empty"),
        ({"endingOffsets": "earliest"}, "a batch that ends at the earliest offsets is empty"),
        ({"startingTimestamp": "today"}, "startingTimestamp is 'today'; write milliseconds since 1970"),
        ({"startingTimestamp": "1", "startingOffsets": "earliest"}, "exclude each other"),
        ({"startingOffsetsByTimestamp": '{"t": 5}'}, "write JSON with milliseconds since 1970"),
        ({"startingOffsetsByTimestamp": "{}", "startingTimestamp": "1"}, "exclude each other"),
        ({"maxTriggerDelay": "5m"}, "maxTriggerDelay has no effect without minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon'; write a time"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "5, above maxOffsetsPerTrigger (4)"),
        ({"tags": "a", "sql": "b > 1"}, "tags and sql exclude each other"),
        ({"accessKey": "ak"}, "access_key and secret_key belong together"),
        ({"tls.client.certPath": "/x"}, "tls.client.certPath has no effect without tls.enable=true"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        live_options({**BASE, **given}, streaming=False)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(option: str) -> None:
    with pytest.raises(SettingsError, match=f"a stream has no end; leave {option} away"):
        stream(**{option: "latest"})


@pytest.mark.parametrize(
    ("kafkas", "ours"),
    [
        ("subscribe", "topic, or topics"),
        ("subscribePattern", "topicPattern"),
        ("includeHeaders", "includeProperties"),
        ("kafka.bootstrap.servers", "namesrvAddr"),
        ("kafka.group.id", "group"),
        ("kafka.ssl.truststore.location", "tls.client.trustCertPath"),
        ("kafka.sasl.jaas.config", "accessKey and secretKey"),
        ("kafka.fetch.min.bytes", "nothing: settings of Kafka's clients"),
    ],
)
def test_an_option_of_kafka_is_told_what_takes_its_place(kafkas: str, ours: str) -> None:
    with pytest.raises(SettingsError) as caught:
        live_options({**BASE, kafkas.lower(): "x"}, streaming=True)
    assert f"the source rocketmq has no option '{kafkas}', which is Kafka's; use {ours}" in str(caught.value)


def test_every_substitute_for_an_option_of_kafka_exists() -> None:
    known = {*LIVE_OPTIONS, *SINK_OPTIONS, "nothing"}
    for ours in (*KAFKA_OPTIONS.values(), *KAFKA_PREFIXES.values()):
        assert re.split("[ ,:]", ours)[0] in known, ours


def test_the_guide_has_every_option() -> None:
    """Ours in tables of options, Kafka's in a table of their own."""
    rows = [
        line for line in (ROOT / "docs/SPARK.md").read_text(encoding="utf-8").splitlines() if line[:1] == "|"
    ]
    named = {name for line in rows for name in re.findall(r"`([\w.]+)`", line)}
    assert {*LIVE_OPTIONS, *LOG_OPTIONS, *SINK_OPTIONS, *KAFKA_OPTIONS} - named == set()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250", 0.25), ("500ms", 0.5), ("10s", 10), ("15 min", 900), ("2h", 7200), ("1D", 86400)],
)
def test_a_delay_is_written_as_in_spark(text: str, seconds: float) -> None:
    assert stream(minOffsetsPerTrigger="10", maxTriggerDelay=text).max_trigger_delay_s == seconds
    assert stream(minOffsetsPerTrigger="10").max_trigger_delay_s == 900


def test_properties_that_a_schema_chooses_are_those_of_senders_unless_an_option_says_otherwise() -> None:
    chosen = partial(live_options, streaming=False, properties_chosen=True)
    assert chosen(BASE).include_properties == "user"
    assert chosen({**BASE, "includeProperties": "true"}).include_properties is True
    assert chosen({**BASE, "includeProperties": "false"}).include_properties is False
    assert batch().include_properties is False
