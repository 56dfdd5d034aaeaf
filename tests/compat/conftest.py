"""What the compatibility tests share: a running cluster, and the choice of the name server under test.

Everywhere a test says "our" name server it means the subject of the run. That is CometMQ's, unless
`COMPAT_SUBJECT=apache` is set: then Apache's own takes its place, and the suite shows that what it demands
is what Apache does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.compat.apache import ApacheNamesrv, CometNamesrv
from tests.compat.cluster import Cluster, MakeNamesrv, running_cluster

SUBJECTS: dict[str, MakeNamesrv] = {"comet": CometNamesrv, "apache": ApacheNamesrv}


@pytest.fixture(scope="session")
def make_namesrv() -> MakeNamesrv:
    """Builds name servers of the kind under test."""
    return SUBJECTS[os.environ.get("COMPAT_SUBJECT", "comet")]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, make_namesrv: MakeNamesrv) -> Iterator[Cluster]:
    """A cluster with our name server, for tests that only add to it; it lives until the end of the run."""
    with running_cluster(tmp_path_factory.mktemp("cluster"), make_namesrv) as running:
        yield running
