"""How brokers and name servers of both kinds understand each other where settings change what is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq import Admin
from tests.compat.apache import ApacheBroker, ApacheNamesrv, Broker, CometBroker, CometNamesrv, Server
from tests.compat.ask import is_routed, topics_known_to
from tests.waiting import wait_until

DELETING = {"deleteTopicWithBrokerRegistration": "true"}
ACTING = {"enableSlaveActingMaster": "true", "brokerNotActiveTimeoutMillis": "3000"}
TIMEOUT_SECONDS = 3.0
PERIOD_SECONDS = 10.0

MakeServer = Callable[..., Server]
MakeBroker = Callable[..., Broker]


@pytest.mark.parametrize(
    ("make_namesrv", "make_broker", "settings"),
    [
        pytest.param(
            ApacheNamesrv, CometBroker, {"enableSingleTopicRegister": "true"}, id="ours-on-apache-single"
        ),
        pytest.param(
            CometNamesrv, ApacheBroker, {"enableSingleTopicRegister": "true"}, id="apache-on-ours-single"
        ),
        pytest.param(
            ApacheNamesrv,
            CometBroker,
            {"enableSingleTopicRegister": "true", "compressedRegister": "true"},
            id="ours-on-apache-compressed",
        ),
        pytest.param(CometNamesrv, ApacheBroker, {}, id="apache-on-ours-changes"),
        pytest.param(
            CometNamesrv,
            ApacheBroker,
            {"enableSplitRegistration": "true", "splitRegistrationSize": "4"},
            id="apache-on-ours-parts",
        ),
    ],
)
def test_a_new_topic_takes_no_other_out_of_the_routes(
    tmp_path: Path, make_namesrv: MakeServer, make_broker: MakeBroker, settings: dict[str, str]
) -> None:
    """N4, B1: where a name server deletes what a registration leaves out."""
    period = {"registerNameServerPeriod": str(int(PERIOD_SECONDS * 1000))}
    with (
        make_namesrv(tmp_path / "namesrv", DELETING) as namesrv,
        make_broker(tmp_path / "broker", namesrv.address, settings={**settings, **period}) as broker,
    ):
        broker.wait_registered(namesrv.address)
        wait_until(lambda: is_routed(namesrv.address, "TBW102"), seconds=30, what="all parts came")
        before = set(topics_known_to(namesrv.address))
        with Admin(namesrv=namesrv.address) as admin:
            for topic in ("Orders", "Bills"):
                admin.create_topic(topic, queues=2)
        begin = time.monotonic()

        def a_period_passed() -> bool:
            known = set(topics_known_to(namesrv.address))
            assert known >= {*before, "Orders", "Bills"}, f"lost: {before - known}"
            return time.monotonic() - begin > 1.5 * PERIOD_SECONDS

        wait_until(a_period_passed, seconds=4 * PERIOD_SECONDS, what="the next registration")


@pytest.mark.parametrize("compatible", ["true", "false"])
def test_our_heartbeats_keep_our_broker_alive_for_apaches_name_server(
    tmp_path: Path, compatible: str
) -> None:
    """B1: its routes are there without a gap, although it registers only every ten seconds."""
    settings = {**ACTING, "compatibleWithOldNameSrv": compatible}
    scan = {"scanNotActiveBrokerInterval": "500"}
    with (
        ApacheNamesrv(tmp_path / "namesrv", scan) as namesrv,
        CometBroker(tmp_path / "broker", namesrv.address, settings=settings) as broker,
    ):
        broker.wait_registered(namesrv.address)
        begin = time.monotonic()

        def is_old() -> bool:
            assert is_routed(namesrv.address, "TBW102"), f"lost after {time.monotonic() - begin:.1f} s"
            return time.monotonic() - begin > 3 * TIMEOUT_SECONDS

        wait_until(is_old, seconds=10 * TIMEOUT_SECONDS, what="three time-outs passed")


def test_our_broker_registers_with_apaches_name_server_over_tls(tmp_path: Path) -> None:
    """B1, R5: which takes nothing else."""
    enforcing = ("-Dtls.server.mode=enforcing",)
    with (
        ApacheNamesrv(tmp_path / "namesrv", java_opts=enforcing) as namesrv,
        CometBroker(tmp_path / "broker", namesrv.address, settings={"useTLS": "true"}) as broker,
    ):
        console = broker.console.read_text()
        assert f"boot success. serializeType=JSON and name server is {namesrv.address}" in console
        assert "registering with" not in console, "nothing failed"
