"""Apache's `mqadmin` cannot tell our name server from Apache's.

The same commands, in the same order, run against two clusters that differ only in the name server. What they
print is compared as a whole, stack traces of refusals included.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.compat.apache import ApacheNamesrv
from tests.compat.client.normal import sorted_lines, without_measurements, without_places
from tests.compat.cluster import Cluster, MakeNamesrv, running_cluster, side_by_side


@dataclass(frozen=True)
class Step:
    """One command, and a part of its output that shows that it did what the step is about."""

    command: str
    shows: str
    # Rows whose order Apache's hash tables decide.
    any_order: bool = False

    @property
    def id(self) -> str:
        return self.command.replace(" ", "_")


SCRIPT = (
    Step("clusterList", "broker-a"),
    Step("clusterList -m", "broker-a"),
    Step("clusterList -c Nowhere", "#Cluster Name"),
    Step("topicList", "TBW102", any_order=True),
    Step("topicList -c", "DefaultCluster        TBW102", any_order=True),
    Step("topicRoute -t TBW102", '"perm":7'),
    Step("topicRoute -t TBW102 -l", "Total:"),
    Step("topicRoute -t NoSuchTopic", "CODE: 17  DESC: No topic route info in name server"),
    Step("topicClusterList -t TBW102", "DefaultCluster"),
    Step("topicClusterList -t NoSuchTopic", "CODE: 17"),
    Step("updateTopic -c DefaultCluster -t Parade -r 6 -w 4", "create topic to <broker> success."),
    Step("topicRoute -t Parade", '"readQueueNums":6'),
    Step("updateTopicPerm -c DefaultCluster -t Parade -p 4", "update topic perm from 6 to 4"),
    Step("topicRoute -t Parade -l", "6          4           4"),
    Step("updateTopic -c DefaultCluster -t Unit -u true -s true", "topicSysFlag=3"),
    Step("topicRoute -t Unit -l", "broker-a"),
    Step("updateTopic -c DefaultCluster -t Queue -o true", "orderConf=[broker-a:8]"),
    Step("updateOrderConf -t Queue -m get", "orderConf=[broker-a:8]"),
    Step("updateOrderConf -t Parade -m put -v broker-a:4;broker-b:8", "update orderConf success"),
    Step("updateOrderConf -t Parade -m get", "orderConf=[broker-a:4;broker-b:8]"),
    Step("updateOrderConf -t Parade -m delete", "delete orderConf success"),
    Step("updateOrderConf -t Parade -m get", "CODE: 22  DESC: No config item"),
    Step("updateKvConfig -s Settings -k colour -v blue", "create or update kv config to namespace success."),
    Step("deleteKvConfig -s Settings -k colour", "delete kv config from namespace success."),
    Step("deleteKvConfig -s Settings -k colour", "delete kv config from namespace success."),
    Step("wipeWritePerm -b broker-a", "in name server[<namesrv>] OK, 1"),
    Step("topicRoute -t Queue", '"perm":4'),
    Step("addWritePerm -b broker-a", "in name server[<namesrv>] OK, 1"),
    Step("topicRoute -t Queue", '"perm":6'),
    Step("wipeWritePerm -b nobody", "OK, 0"),
    Step("addWritePerm -b nobody", "OK, 0"),
    Step("getNamesrvConfig", "clusterTest", any_order=True),
    Step("updateNamesrvConfig -k orderMessageEnable -v true", "update name server config success!"),
    Step("topicRoute -t Queue", '"orderTopicConf":"broker-a:8"'),
    Step("getNamesrvConfig", "orderMessageEnable                                =  true", any_order=True),
    Step("updateNamesrvConfig -k kvConfigPath -v elsewhere", "CODE: 16  DESC: Can not update config"),
    Step("updateNamesrvConfig -k noSuchKey -v 1", "update name server config success!"),
    Step("getNamesrvConfig", "listenPort", any_order=True),
    Step("updateNamesrvConfig -k orderMessageEnable -v false", "update name server config success!"),
    Step("deleteTopic -c DefaultCluster -t Queue", "delete topic [Queue] from NameServer success."),
    Step("topicRoute -t Queue", "CODE: 17"),
    Step("deleteTopic -c DefaultCluster -t NoSuchTopic", "from NameServer success."),
    Step("deleteTopic -c Nowhere -t Parade", "Nowhere"),
    Step("topicList", "Parade", any_order=True),
)


def play(cluster: Cluster) -> list[str]:
    """The outputs of the whole script in one cluster, with the places of that cluster taken out."""
    places = {
        cluster.namesrv.address: "namesrv",
        cluster.broker.address: "broker",
        str(cluster.namesrv.port): "namesrv port",
        str(cluster.namesrv.home): "namesrv home",
    }
    # The first command of a JVM loads its classes while the client's time-out runs.
    cluster.mqadmin(*SCRIPT[0].command.split())
    return [without_places(cluster.mqadmin(*step.command.split()), places) for step in SCRIPT]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory, make_namesrv: MakeNamesrv) -> list[tuple[str, str]]:
    """What each step printed: against Apache's name server, and against ours."""
    home = tmp_path_factory.mktemp("mqadmin")

    def play_in_new_cluster(name: str, make: MakeNamesrv) -> list[str]:
        with running_cluster(home / name, make) as cluster:
            return play(cluster)

    apache, ours = side_by_side(
        lambda: play_in_new_cluster("apache", ApacheNamesrv),
        lambda: play_in_new_cluster("ours", make_namesrv),
    )
    return list(zip(apache, ours, strict=True))


@pytest.mark.parametrize(
    "number", range(len(SCRIPT)), ids=[f"{i:02}-{step.id}" for i, step in enumerate(SCRIPT)]
)
def test_mqadmin_prints_the_same(outputs: list[tuple[str, str]], number: int) -> None:
    """N4, N7, N8, N9: each administration command prints what it prints with Apache's name server."""
    step = SCRIPT[number]
    apache, ours = (without_measurements(text) for text in outputs[number])
    if step.any_order:
        apache, ours = sorted_lines(apache), sorted_lines(ours)
    assert step.shows in outputs[number][0]
    assert ours == apache
