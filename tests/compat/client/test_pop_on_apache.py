"""Our pop consumers, recalls, and Apache's broker: the behaviour tests once more, against the other side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cometmq.client.consumer.pop import consumer as pop_engine
from tests.behaviour.server import CASES, Server
from tests.compat.apache import ApacheBroker
from tests.compat.cluster import MakeNamesrv

pytest.register_assert_rewrite(*CASES)

from tests.behaviour.cases_pop import *  # noqa: E402, F403
from tests.behaviour.cases_pop import POP_SETTINGS  # noqa: E402

WAIT_MS = 3_000


@pytest.fixture(scope="module", autouse=True)
def _impatient() -> Iterator[None]:
    """Let a pop wait for a shorter time: Apache's broker wakes none for a message that comes back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pop_engine, "_WAIT_MS", WAIT_MS)
        yield


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, make_namesrv: MakeNamesrv) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("popping")
    with (
        make_namesrv(home / "namesrv") as namesrv,
        ApacheBroker(home / "broker", namesrv.address, settings=POP_SETTINGS) as broker,
    ):
        broker.wait_registered(namesrv.address)
        yield Server(namesrv.address)
