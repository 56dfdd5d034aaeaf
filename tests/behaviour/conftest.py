"""Our own broker as the server of the behaviour tests: one for the whole run, on a thread of this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cometmq.testing.embedded import EmbeddedBroker
from tests.behaviour.server import CASES, QUICK_CHECKS, Server

pytest.register_assert_rewrite(*CASES)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with EmbeddedBroker(settings={"enablePropertyFilter": "true"}) as broker:
        yield Server(broker.namesrv)


@pytest.fixture(scope="session")
def asking_server() -> Iterator[Server]:
    """One that soon asks how transactions ended."""
    with EmbeddedBroker(settings=QUICK_CHECKS) as broker:
        yield Server(broker.namesrv)
