"""Our consumers and Apache's broker: the behaviour tests of consumers once more, against the other side."""

from __future__ import annotations

import pytest

from tests.behaviour.server import CASES, Server
from tests.compat.cluster import Cluster

pytest.register_assert_rewrite(*CASES)

from tests.behaviour.cases_consumer import *  # noqa: E402, F403
from tests.behaviour.cases_consumer_ordered import *  # noqa: E402, F403
from tests.behaviour.cases_consumer_pull import *  # noqa: E402, F403
from tests.behaviour.cases_consumer_requests import *  # noqa: E402, F403
from tests.behaviour.cases_rebalance_listener import *  # noqa: E402, F403


@pytest.fixture(scope="session")
def server(cluster: Cluster) -> Server:
    return Server(cluster.namesrv.address)
