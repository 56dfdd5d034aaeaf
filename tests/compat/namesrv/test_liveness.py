"""Our name server forgets a broker when it should, and not before.

The broker of these tests tells the name server to expect a sign of life every few seconds, gives one every
second, and registers again only when the name server does not know its state. Its headers are binary.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.compat.apache import ApacheBroker, Server
from tests.compat.ask import brokers_of, is_routed
from tests.compat.cluster import MakeNamesrv
from tests.waiting import wait_until

TIMEOUT_SECONDS = 4.0
SCAN_SECONDS = 0.5
PERIOD_SECONDS = 10.0
# What a poll, a scan and a busy machine may add.
SLACK_SECONDS = 6.0
TOPIC = "TBW102"


@dataclass(frozen=True)
class Watched:
    namesrv: Server
    broker: ApacheBroker

    @property
    def is_routed(self) -> bool:
        return is_routed(self.namesrv.address, TOPIC)

    def wait_until_back(self) -> None:
        wait_until(
            lambda: self.is_routed,
            seconds=3 * PERIOD_SECONDS,
            what="the broker's next registration brings its routes",
        )

    def queried_versions(self) -> list[str]:
        """What the name server said to the broker's questions whether anything changed, oldest first."""
        log = (self.broker.home / "java.log").read_text()
        lines = [line for line in log.splitlines() if "Query data version from name server" in line]
        return [line.split(", ")[1] for line in lines]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, make_namesrv: MakeNamesrv) -> Iterator[Watched]:
    home = tmp_path_factory.mktemp("liveness")
    scan = {"scanNotActiveBrokerInterval": str(int(SCAN_SECONDS * 1000))}
    settings = {
        "enableSlaveActingMaster": "true",
        "brokerNotActiveTimeoutMillis": str(int(TIMEOUT_SECONDS * 1000)),
        "registerNameServerPeriod": str(int(PERIOD_SECONDS * 1000)),
        "forceRegister": "false",
    }
    with (
        make_namesrv(home / "namesrv", scan) as namesrv,
        ApacheBroker(
            home / "broker",
            namesrv.address,
            settings=settings,
            java_opts=("-Drocketmq.serialize.type=ROCKETMQ",),
        ) as broker,
    ):
        yield Watched(namesrv, broker)


@pytest.fixture
def watched(pair: Watched) -> Watched:
    """The pair with its broker alive and registered, whatever the test before did to it."""
    if not pair.broker.is_running:
        pair.broker.start()
    pair.broker.resume()
    pair.wait_until_back()
    return pair


def test_a_quiet_broker_lives_by_its_questions(watched: Watched) -> None:
    """N5: asking whether anything changed is a sign of life; nothing did, so it does not register."""
    asked = len(watched.queried_versions())
    begin = time.monotonic()

    def asked_again() -> bool:
        assert watched.is_routed, f"lost after {time.monotonic() - begin:.1f} s"
        return len(watched.queried_versions()) > asked and time.monotonic() - begin > 2 * TIMEOUT_SECONDS

    wait_until(asked_again, seconds=2 * PERIOD_SECONDS, what="the broker asked again")
    assert watched.queried_versions()[-1] == "changed false"


def test_a_name_server_that_lost_its_memory_gets_it_back(watched: Watched) -> None:
    """N1, N5: after a restart it knows nothing, says that everything changed, and the broker registers."""
    watched.namesrv.kill()
    watched.namesrv.start()
    assert brokers_of(watched.namesrv.address) == {}
    watched.wait_until_back()
    assert "changed true" in watched.queried_versions()


def test_a_silent_broker_is_kept_until_its_own_time_out_and_then_removed(watched: Watched) -> None:
    """N6: the scan removes it after the silence that it announced, although its connection is open."""
    watched.broker.pause()
    paused_s = time.monotonic()
    wait_until(
        lambda: not watched.is_routed,
        seconds=TIMEOUT_SECONDS + SCAN_SECONDS + SLACK_SECONDS,
        what="the silent broker left",
    )
    # The last sign of life came a second before the pause, or more where the machine is busy.
    assert time.monotonic() - paused_s > 1
    assert brokers_of(watched.namesrv.address) == {}
    watched.broker.resume()
    watched.wait_until_back()


def test_a_killed_broker_is_removed_at_once(watched: Watched) -> None:
    """N6: the system closes the connection of a dead process, and that is enough."""
    watched.broker.kill()
    killed_s = time.monotonic()
    wait_until(lambda: not watched.is_routed, seconds=2.0, what="the killed broker left")
    assert time.monotonic() - killed_s < TIMEOUT_SECONDS / 2
    assert brokers_of(watched.namesrv.address) == {}
