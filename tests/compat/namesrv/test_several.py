"""Several of our name servers, none of which knows of the others, carry one cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compat.apache import ApacheBroker, Server, run_java
from tests.compat.ask import GET_KV_CONFIG, PUT_KV_CONFIG, QUERY_NOT_FOUND, SUCCESS, ask, is_routed
from tests.compat.cluster import MakeNamesrv

MESSAGES = 40


@dataclass(frozen=True)
class Several:
    first: Server
    second: Server
    broker: ApacheBroker

    @property
    def addresses(self) -> str:
        return f"{self.first.address};{self.second.address}"


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory, make_namesrv: MakeNamesrv) -> Iterator[Several]:
    home = tmp_path_factory.mktemp("several")
    with (
        make_namesrv(home / "first") as first,
        make_namesrv(home / "second") as second,
        ApacheBroker(
            home / "broker",
            f"{first.address};{second.address}",
            settings={"registerNameServerPeriod": "10000"},
        ) as broker,
    ):
        broker.wait_registered(first.address, second.address)
        yield Several(first, second, broker)


def test_name_servers_do_not_talk_to_each_other(several: Several) -> None:
    """N1: what one is told stays with it; the routes are in both because the broker told both."""
    item = {"namespace": "Private", "key": "k"}
    assert ask(several.first.address, PUT_KV_CONFIG, {**item, "value": "v"}).code == SUCCESS
    assert ask(several.first.address, GET_KV_CONFIG, item).fields == {"value": "v"}
    assert ask(several.second.address, GET_KV_CONFIG, item).code == QUERY_NOT_FOUND
    assert is_routed(several.first.address, "TBW102")
    assert is_routed(several.second.address, "TBW102")


def test_the_cluster_works_while_one_name_server_is_down_and_after_its_return(
    several: Several, tmp_path: Path
) -> None:
    """N1: clients use the one that is left; the other has the routes again after the broker's next round."""
    several.first.kill()
    printed = run_java("Exchange.java", several.addresses, "OneLeft", str(MESSAGES), home=tmp_path / "one")
    assert printed.split() == [f"sent={MESSAGES}", f"received={MESSAGES}"]

    several.first.start()
    several.broker.wait_registered(several.first.address)
    assert is_routed(several.first.address, "OneLeft")
    several.second.kill()
    printed = run_java("Exchange.java", several.addresses, "OneBack", str(MESSAGES), home=tmp_path / "back")
    assert printed.split() == [f"sent={MESSAGES}", f"received={MESSAGES}"]
