"""Our pop consumers, recalls, and Apache's broker: the behaviour tests once more, against the other side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.behaviour.server import CASES, Server
from tests.compat.apache import ApacheBroker
from tests.compat.cluster import MakeNamesrv

pytest.register_assert_rewrite(*CASES)

from tests.behaviour.cases_pop import *  # noqa: E402, F403
from tests.behaviour.cases_pop import POP_SETTINGS  # noqa: E402


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, make_namesrv: MakeNamesrv) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("popping")
    with (
        make_namesrv(home / "namesrv") as namesrv,
        ApacheBroker(home / "broker", namesrv.address, settings=POP_SETTINGS) as broker,
    ):
        broker.wait_registered(namesrv.address)
        yield Server(namesrv.address)
