"""What the compatibility tests share: a running cluster, and the choice of the name server under test.

Everywhere a test says "our" name server it means the subject of the run. That is CometMQ's, unless
`COMPAT_SUBJECT=apache` is set: then Apache's own takes its place, and the suite shows that what it demands
is what Apache does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.apache import ApacheNamesrv, ApacheServer, CometNamesrv
from tests.compat.cluster import Cluster, MakeNamesrv, running_cluster
from tests.compat.jvm import SHORT_LIFE

# The suites are imported by several test modules; their assertions should tell as much as a module's own.
pytest.register_assert_rewrite(
    *(
        f"tests.compat.client.suite_{name}"
        for name in ("basics", "consuming", "pulling", "queries", "sending")
    )
)

# A benchmark has Apache's servers at their best; here they have to start quickly.
ApacheServer.common_java_opts = SHORT_LIFE

HERE = Path(__file__).parent
SUBJECTS: dict[str, MakeNamesrv] = {"comet": CometNamesrv, "apache": ApacheNamesrv}

LONGEST = (
    "test_store_kills",
    "test_broker_kinds_handover",
    "test_broker_java",
    "test_kinds_java",
    "test_pop_on_apache",
    "test_broker_java_old",
    "test_broker_go",
    "test_broker_faults",
    "test_liveness",
)
"""The modules that take longest. They come first, so that no worker is left alone with one at the end."""


TIMEOUT_SECONDS = 300
"""For a test that says nothing else: the first one of a module waits for servers to start."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONGEST)))
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def make_namesrv() -> MakeNamesrv:
    """Builds name servers of the kind under test."""
    return SUBJECTS[os.environ.get("COMPAT_SUBJECT", "comet")]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, make_namesrv: MakeNamesrv) -> Iterator[Cluster]:
    """A cluster with our name server, for tests that only add to it; it lives until the end of the run."""
    with running_cluster(tmp_path_factory.mktemp("cluster"), make_namesrv) as running:
        yield running
