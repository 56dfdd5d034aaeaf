"""Pop consumers, recalls, and our own broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cometmq.testing.embedded import EmbeddedBroker
from tests.behaviour.cases_pop import *  # noqa: F403
from tests.behaviour.cases_pop import POP_SETTINGS
from tests.behaviour.server import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with EmbeddedBroker(settings=POP_SETTINGS) as broker:
        yield Server(broker.namesrv)
