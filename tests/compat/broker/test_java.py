"""Apache's Java clients 5.3 and 4.9.8 on our broker: sending and consuming, with JSON and binary headers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.client.subject import Subject, running_subject
from tests.compat.client.suite_consuming import DeliverySuite, OrderSuite, RetrySuite, SharingSuite
from tests.compat.client.suite_pulling import LitePullSuite, PullSuite
from tests.compat.client.suite_queries import GroupSuite, LookUpSuite, OffsetSuite
from tests.compat.client.suite_sending import RefusalSuite, SendingSuite
from tests.compat.foreign_clients import JavaClient, OldJavaClient
from tests.compat.jvm import OLDEST, RELEASE


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    with running_subject(tmp_path_factory.mktemp("java")) as running:
        yield running


CLIENTS = {RELEASE: JavaClient, "4.9.8": OldJavaClient} if RELEASE == OLDEST else {RELEASE: JavaClient}


@pytest.fixture(scope="module", params=CLIENTS.values(), ids=list(CLIENTS))
def release(request: pytest.FixtureRequest) -> type[JavaClient]:
    client: type[JavaClient] = request.param
    return client


@pytest.fixture(scope="module")
def java(
    tmp_path_factory: pytest.TempPathFactory, subject: Subject, release: type[JavaClient]
) -> Iterator[JavaClient]:
    """With JSON headers for 5.3, and binary ones for 4.9.8."""
    is_binary = release is OldJavaClient
    with release(tmp_path_factory.mktemp("client"), subject.namesrv.address, binary=is_binary) as client:
        yield client


class TestSending(SendingSuite):
    pass


class TestSendingWithTheOtherHeaders(SendingSuite):
    @pytest.fixture(scope="class")
    @classmethod
    def java(
        cls, tmp_path_factory: pytest.TempPathFactory, subject: Subject, release: type[JavaClient]
    ) -> Iterator[JavaClient]:
        home, is_binary = tmp_path_factory.mktemp("headers"), release is JavaClient
        with release(home, subject.namesrv.address, binary=is_binary) as client:
            yield client


class TestRefusals(RefusalSuite):
    pass


class TestSharing(SharingSuite):
    pass


class TestOrder(OrderSuite):
    pass


class TestRetry(RetrySuite):
    pass


class TestDelivery(DeliverySuite):
    pass


class TestPull(PullSuite):
    pass


class TestLitePull(LitePullSuite):
    pass


class TestLookUp(LookUpSuite):
    pass


class TestOffsets(OffsetSuite):
    pass


class TestGroups(GroupSuite):
    pass
