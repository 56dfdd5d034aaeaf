"""The settings of clients."""

from __future__ import annotations

from typing import Any

import pytest

from cometmq.client.producer.settings import ProducerOptions, ProducerSettings
from cometmq.client.settings import (
    ClientOptions,
    ClientSettings,
    common_settings,
    name_server_addresses,
    namespace_of,
)
from cometmq.model.errors import SettingsError


@pytest.mark.parametrize(
    ("settings", "options"), [(ClientSettings, ClientOptions), (ProducerSettings, ProducerOptions)]
)
def test_the_keywords_are_the_settings(settings: type[ClientSettings], options: type[Any]) -> None:
    assert set(options.__annotations__) == set(settings.__struct_fields__)


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("10.0.0.1:9876", ("10.0.0.1:9876",)),
        (" a:1 ; b:2;;a:1", ("a:1", "b:2")),
        ("http://a:1;HTTPS://b:2", ("a:1", "b:2")),
        ("[::1]:9876", ("[::1]:9876",)),
    ],
)
def test_name_servers_are_read_from_the_text(text: str, addresses: tuple[str, ...]) -> None:
    assert name_server_addresses(ClientSettings(namesrv=text), {}) == addresses
    assert name_server_addresses(ClientSettings(), {"NAMESRV_ADDR": text}) == addresses


def test_the_setting_wins_over_the_environment() -> None:
    settings = ClientSettings(namesrv="a:1")
    assert name_server_addresses(settings, {"NAMESRV_ADDR": "b:2"}) == ("a:1",)


def test_an_endpoint_of_an_instance_names_the_namespace() -> None:
    endpoint = "http://MQ_INST_17_abc.mq.example.com:8080"
    assert namespace_of(ClientSettings(namesrv=endpoint)) == "MQ_INST_17_abc"
    assert namespace_of(ClientSettings(namesrv=endpoint, namespace="mine")) == "mine"
    assert namespace_of(ClientSettings(namesrv="a:1")) == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"call_timeout_ms": 0},
        {"heartbeat_broker_interval_ms": -1},
        {"poll_name_server_interval_ms": 0},
        {"access_key": "a"},
        {"serialize_type": 2},
        {"instance_name": "a@b"},
        {"send_timeout_ms": 0},
        {"retry_times": -1},
        {"max_timeout_per_try_ms": 0},
        {"compression": "GZIP"},
        {"max_in_flight_messages": 0},
        {"max_in_flight_bytes": 1.5},
    ],
)
def test_a_value_that_cannot_work_is_refused_by_name(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(SettingsError, match=name):
        ProducerSettings(**wrong)


def test_the_shared_part_can_be_compared() -> None:
    producer = ProducerSettings(namesrv="a:1", retry_times=7)
    assert common_settings(producer) == ClientSettings(namesrv="a:1")
