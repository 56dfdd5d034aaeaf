"""Apache's Java client 5.3 sends to our broker and consumes from it, with JSON headers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.client.subject import Subject, running_subject
from tests.compat.client.suite_consuming import DeliverySuite, OrderSuite, RetrySuite, SharingSuite
from tests.compat.client.suite_pulling import LitePullSuite, PullSuite
from tests.compat.client.suite_queries import GroupSuite, LookUpSuite, OffsetSuite
from tests.compat.client.suite_sending import RefusalSuite, SendingSuite
from tests.compat.foreign_clients import JavaClient


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    with running_subject(tmp_path_factory.mktemp("java")) as running:
        yield running


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory, subject: Subject) -> Iterator[JavaClient]:
    with JavaClient(tmp_path_factory.mktemp("client"), subject.namesrv.address) as client:
        yield client


class TestSending(SendingSuite):
    pass


class TestSendingWithBinaryHeaders(SendingSuite):
    @pytest.fixture(scope="class")
    @classmethod
    def java(cls, tmp_path_factory: pytest.TempPathFactory, subject: Subject) -> Iterator[JavaClient]:
        home = tmp_path_factory.mktemp("binary")
        with JavaClient(home, subject.namesrv.address, binary=True) as client:
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
