"""Our clients and Apache's broker: the behaviour tests once more, against the other side.

`tests/behaviour` runs the same cases against our own broker, so that both are held to the same demands.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.behaviour.server import CASES, QUICK_CHECKS, Server
from tests.compat.apache import ApacheBroker
from tests.compat.cluster import Cluster, MakeNamesrv

pytest.register_assert_rewrite(*CASES)

from tests.behaviour.cases_admin import *  # noqa: E402, F403
from tests.behaviour.cases_producer import *  # noqa: E402, F403
from tests.behaviour.cases_request_reply import *  # noqa: E402, F403
from tests.behaviour.cases_trace import *  # noqa: E402, F403
from tests.behaviour.cases_transactions import *  # noqa: E402, F403


@pytest.fixture(scope="session")
def server(cluster: Cluster) -> Server:
    return Server(cluster.namesrv.address)


@pytest.fixture(scope="session")
def asking_server(tmp_path_factory: pytest.TempPathFactory, make_namesrv: MakeNamesrv) -> Iterator[Server]:
    """A broker of its own, which soon asks how transactions ended."""
    home = tmp_path_factory.mktemp("asking")
    with (
        make_namesrv(home / "namesrv") as namesrv,
        ApacheBroker(home / "broker", namesrv.address, settings=QUICK_CHECKS) as broker,
    ):
        broker.wait_registered(namesrv.address)
        yield Server(namesrv.address)
