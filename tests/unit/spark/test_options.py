"""Options: mistakes are told in a sentence before anything runs (D1)."""

from __future__ import annotations

import pickle

import pytest

from cometmq.client.subscription import Sql
from cometmq.model.errors import SettingsError
from cometmq.model.queue import MessageQueue
from cometmq.spark.live.offsets import EARLIEST, LATEST
from cometmq.spark.live.options import NAMELESS_GROUP, Bound, LiveOptions, live_options

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
        ({"startingOffset": "earliest"}, "no option 'startingoffset'; did you mean startingOffsets?"),
        ({"qwertz": "1"}, "no option 'qwertz'; there are accessKey, "),
        ({"topics": "a,b"}, "topic and topics exclude each other"),
        ({"topic": ""}, "nothing says what to read"),
        ({"topic": "a b"}, "topic 'a b' contains something else"),
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
        ({"tags": "a", "sql": "b > 1"}, "tags and sql exclude each other"),
        ({"accessKey": "ak"}, "access_key and secret_key belong together"),
        ({"tls.client.certPath": "/x"}, "tls.client.certPath has no effect without tls.enable=true"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        live_options({**BASE, **given}, streaming=False)
    assert sentence in str(caught.value)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(SettingsError, match="a stream has no end"):
        stream(endingOffsets="latest")
