"""Settings of consumers: RocketMQ's defaults, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cometmq.client.consumer.settings import PullSettings, PushSettings, default_offset_folder
from cometmq.model.errors import SettingsError
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere, MessageModel


def test_the_defaults_are_those_of_rocketmq() -> None:
    """C4, C5."""
    settings = PushSettings()
    assert settings.message_model is MessageModel.CLUSTERING
    assert settings.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    assert (settings.consume_threads, settings.pull_batch_size) == (20, 32)
    assert (settings.pull_threshold_for_queue, settings.pull_threshold_size_for_queue_mib) == (1000, 100)
    assert (settings.consume_concurrently_max_span, settings.send_back_limit) == (2000, 16)
    assert settings.strategy.name == "AVG"
    assert PullSettings().pull_threshold_for_all == 10_000


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"consume_threads": 0}, "consume_threads"),
        ({"pull_batch_size": 1025}, "pull_batch_size"),
        ({"consume_message_batch_max_size": 0}, "consume_message_batch_max_size"),
        ({"pull_threshold_for_queue": 0}, "pull_threshold_for_queue"),
        ({"pull_threshold_for_topic": -2}, "pull_threshold_for_topic"),
        ({"max_reconsume_times": -2}, "max_reconsume_times"),
        ({"message_model": "SHARED"}, "message_model"),
        ({"consume_from_where": "the beginning"}, "CONSUME_FROM_FIRST_OFFSET"),
    ],
)
def test_what_cannot_work_is_refused_by_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        PushSettings(**options)


def test_a_pull_that_ends_before_the_broker_answers_is_refused() -> None:
    with pytest.raises(SettingsError, match="longer"):
        PullSettings(consumer_timeout_when_suspend_ms=10_000)
    with pytest.raises(SettingsError, match="auto_commit_interval_ms"):
        PullSettings(auto_commit_interval_ms=999)


def test_the_folder_of_local_offsets_can_be_set_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """C3."""
    monkeypatch.delenv("COMETMQ_LOCAL_OFFSET_STORE_DIR", raising=False)
    assert default_offset_folder() == Path.home() / ".rocketmq_offsets"
    monkeypatch.setenv("COMETMQ_LOCAL_OFFSET_STORE_DIR", "/var/offsets")
    assert default_offset_folder() == Path("/var/offsets")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("earliest", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
        ("Latest", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET),
        ("consume_from_timestamp", ConsumeFromWhere.CONSUME_FROM_TIMESTAMP),
    ],
)
def test_choices_may_be_texts(text: str, where: ConsumeFromWhere) -> None:
    settings = PushSettings(consume_from_where=text, message_model="broadcasting")  # type: ignore[arg-type]
    assert (settings.consume_from_where, settings.message_model) == (where, MessageModel.BROADCASTING)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rebalance_interval_ms": 20.0}, "whole number of milliseconds: 20000 if these are seconds"),
        ({"stop_timeout_ms": 0.5}, "whole number of milliseconds: 500 if these are seconds"),
        ({"poll_timeout_ms": 5000.0}, "whole number of milliseconds: int(5000.0)"),
        ({"poll_timeout_ms": -1}, "poll_timeout_ms is -1; it has to be at least 0"),
        (
            {"consume_from_where": "CONSUME_FROM_TIMESTAMP", "consume_timestamp_ms": 1_763_330_000},
            "looks like seconds since 1970; in milliseconds: 1763330000000",
        ),
        (
            {"consume_timestamp_ms": 1_763_330_000_000},
            "consume_timestamp_ms needs consume_from_where='CONSUME_FROM_TIMESTAMP'",
        ),
    ],
)
def test_seconds_in_place_of_milliseconds_are_noticed(options: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError) as raised:
        PullSettings(**options)
    assert words in str(raised.value)
