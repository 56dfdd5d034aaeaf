"""The settings of clients."""

from __future__ import annotations

from typing import Any

import pytest

from cometmq import PushConsumer
from cometmq.client.producer.settings import ProducerOptions, ProducerSettings
from cometmq.client.settings import (
    ClientOptions,
    ClientSettings,
    common_settings,
    name_server_source,
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
        ("a,b:2 c", ("a:9876", "b:2", "c:9876")),
        ("http://a/", ("a:9876",)),
        ("[::1];fe80::1", ("[::1]:9876", "[fe80::1]:9876")),
    ],
)
def test_name_servers_are_read_from_the_text(text: str, addresses: tuple[str, ...]) -> None:
    assert name_server_source(ClientSettings(namesrv=text), {}).listed == addresses
    assert name_server_source(ClientSettings(), {"NAMESRV_ADDR": text}).listed == addresses
    assert (
        name_server_source(ClientSettings(), {"NAMESRV_ADDR": "x", "COMETMQ_NAMESRV": text}).listed
        == addresses
    )
    assert name_server_source(ClientSettings(namesrv=text.split(";")), {}).listed == addresses


@pytest.mark.parametrize(
    "wrong",
    ["host:0", "host:port", ":9876", "host:70000", "http://host/path", "a;b:x", ":::", "a:b:1", "[a]:1"],
)
def test_what_is_no_address_is_refused_with_an_example(wrong: str) -> None:
    with pytest.raises(SettingsError, match=r"expected host:port, e\.g\. 10\.0\.0\.1:9876"):
        name_server_source(ClientSettings(namesrv=wrong), {})


def test_an_address_server_is_asked_when_no_name_server_is_listed() -> None:
    assert (
        name_server_source(ClientSettings(namesrv_domain="ns.example"), {}).url
        == "http://ns.example:8080/rocketmq/nsaddr"
    )
    environment = {"COMETMQ_NAMESRV_DOMAIN": "ns.example:80", "COMETMQ_NAMESRV_DOMAIN_SUBGROUP": "blue"}
    source = name_server_source(ClientSettings(unit_name="live"), environment)
    assert (source.url, source.is_fixed) == ("http://ns.example:80/rocketmq/blue-live?nofix=1", False)
    assert name_server_source(ClientSettings(namesrv="a"), environment) == (("a:9876",), "", False)
    with pytest.raises(SettingsError, match="set COMETMQ_NAMESRV"):
        name_server_source(ClientSettings(), {})


def test_the_setting_wins_over_the_environment() -> None:
    settings = ClientSettings(namesrv="a:1")
    assert name_server_source(settings, {"NAMESRV_ADDR": "b:2"}).listed == ("a:1",)


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
        {"compression_level": 10},
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


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"tls": True}, r"tls is True; it has to be ClientTls\(…\), or None for no TLS"),
        ({"ordered": "yes"}, "ordered is 'yes'; it has to be True or False"),
        ({"namespace": 3}, "namespace is 3; it has to be a text"),
        ({"access_key": b"key"}, "access_key is b'key'; it has to be a text"),
    ],
)
def test_a_value_of_another_type_is_refused_with_what_it_has_to_be(option: dict[str, Any], said: str) -> None:
    """C1: when the client is made, and not where the value is used."""
    with pytest.raises(SettingsError, match=said):
        PushConsumer("g", **option)
