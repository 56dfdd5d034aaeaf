"""The cluster-test mode: a name server for trials that falls back to the routes of production."""

from __future__ import annotations

from pathlib import Path

from tests.compat.apache import ApacheNamesrv, run_java
from tests.compat.ask import CURRENT_VERSION, GET_ROUTE, SUCCESS, TOPIC_NOT_EXIST, Answer, ask
from tests.compat.client.normal import unordered
from tests.compat.cluster import Cluster, MakeNamesrv

TRIAL = {"clusterTest": "true"}
OLD_VERSION = 300


def test_a_route_that_only_production_has_is_answered(
    cluster: Cluster, tmp_path: Path, make_namesrv: MakeNamesrv
) -> None:
    """N10: the trial server asks the name servers of production, and answers as Apache's does."""
    production = {"NAMESRV_ADDR": cluster.namesrv.address}
    with (
        ApacheNamesrv(tmp_path / "apache", TRIAL, env=production) as apache,
        make_namesrv(tmp_path / "ours", TRIAL, env=production) as ours,
    ):

        def both(topic: str, version: int) -> tuple[Answer, Answer]:
            servers = (apache.address, ours.address)
            first, second = (ask(server, GET_ROUTE, {"topic": topic}, version=version) for server in servers)
            return first, second

        expected, got = both("NoSuchTopic", CURRENT_VERSION)
        assert expected.code == TOPIC_NOT_EXIST
        assert got == expected
        expected, got = both("TBW102", OLD_VERSION)
        assert expected.code == SUCCESS
        assert got == expected
        # Apache's trial server spells the older way for everybody; ours follows the client here too.
        expected, got = both("TBW102", CURRENT_VERSION)
        assert got.code == expected.code == SUCCESS
        assert unordered(got.text) == unordered(expected.text)


def test_clients_of_a_trial_cluster_reach_production(
    cluster: Cluster, tmp_path: Path, make_namesrv: MakeNamesrv
) -> None:
    """N10: a producer and a consumer that know only the trial server exchange messages in production."""
    production = {"NAMESRV_ADDR": cluster.namesrv.address}
    with make_namesrv(tmp_path / "ours", TRIAL, env=production) as trial:
        printed = run_java("Exchange.java", trial.address, "FromTrial", "20", home=tmp_path / "client")
    assert printed.split() == ["sent=20", "received=20"]
