"""Apache's broker registers with our name server in each of its ways, and Apache's clients find it there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compat.apache import ApacheBroker, Server, run_java
from tests.compat.ask import (
    GET_CLUSTER_INFO,
    ask,
    brokers_of,
    is_routed,
    topics_kept_by,
    topics_known_to,
)
from tests.compat.cluster import Cluster, MakeNamesrv
from tests.waiting import wait_until

MESSAGES = 40
PART_SIZE = 3
PERIOD_SECONDS = 10

TRANSPORTS = {
    "json": {},
    "binary": {"rocketmq.serialize.type": "ROCKETMQ"},
    "tls": {"tls.enable": "true"},
}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_producer_and_consumer_find_each_other(cluster: Cluster, tmp_path: Path, transport: str) -> None:
    """N4, N7: a topic made by the first send is routed, and every message arrives."""
    printed = run_java(
        "Exchange.java",
        cluster.namesrv.address,
        f"Exchange-{transport}",
        str(MESSAGES),
        home=tmp_path,
        props=TRANSPORTS[transport],
    )
    assert printed.split() == [f"sent={MESSAGES}", f"received={MESSAGES}"]


@dataclass(frozen=True)
class Registered:
    namesrv: Server
    broker: ApacheBroker


@pytest.fixture(scope="module")
def in_parts(tmp_path_factory: pytest.TempPathFactory, make_namesrv: MakeNamesrv) -> Iterator[Registered]:
    """A broker that sends its topics three at a time."""
    home = tmp_path_factory.mktemp("in-parts")
    settings = {
        "enableSplitRegistration": "true",
        "splitRegistrationSize": str(PART_SIZE),
        "registerNameServerPeriod": str(PERIOD_SECONDS * 1000),
    }
    with (
        make_namesrv(home / "namesrv") as namesrv,
        ApacheBroker(
            home / "broker",
            namesrv.address,
            name="broker-parts",
            settings=settings,
        ) as broker,
    ):
        broker.wait_registered(namesrv.address)
        yield Registered(namesrv, broker)


def test_a_registration_in_parts_adds_up(in_parts: Registered) -> None:
    """N4: topics that a part leaves out stay, and in the end all of the broker's topics are routed."""
    kept = topics_kept_by(in_parts.broker.address)
    assert len(kept) > 3 * PART_SIZE
    wait_until(
        lambda: topics_known_to(in_parts.namesrv.address) == kept,
        seconds=PERIOD_SECONDS + 5,
        what="all parts of the registration are in",
    )


def test_a_topic_made_later_is_routed_at_once_and_takes_none_away(
    in_parts: Registered, cluster: Cluster
) -> None:
    """N4: the broker then registers only the new topic; the answer to the command comes after that."""
    namesrv = in_parts.namesrv.address
    before = topics_known_to(namesrv)
    cluster.shell.run("updateTopic", "-b", in_parts.broker.address, "-t", "Later", namesrv=namesrv)
    assert is_routed(namesrv, "Later")
    assert topics_known_to(namesrv) == before | {"Later"}


def test_a_broker_that_stops_in_good_order_is_gone_when_it_has_stopped(in_parts: Registered) -> None:
    """N6: nothing of the broker is left, neither its topics nor its name nor its cluster."""
    assert in_parts.broker.is_registered(in_parts.namesrv.address)
    in_parts.broker.stop()
    wait_until(
        lambda: brokers_of(in_parts.namesrv.address) == {},
        seconds=5,
        what="the stopped broker left the tables",
    )
    assert topics_known_to(in_parts.namesrv.address) == set()
    info = ask(in_parts.namesrv.address, GET_CLUSTER_INFO)
    assert info.text == '{"brokerAddrTable":{},"clusterAddrTable":{}}'
