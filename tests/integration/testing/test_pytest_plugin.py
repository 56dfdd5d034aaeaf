"""The pytest fixtures that tests of users get (B1)."""

from __future__ import annotations

import pytest

pytest_plugins = ("pytester",)


def test_the_fixture_gives_every_test_a_broker_of_its_own(pytester: pytest.Pytester) -> None:
    """B1: nothing has to be configured."""
    pytester.makepyfile(
        """
        addresses = []

        def test_one(rocketmq):
            addresses.append(rocketmq.address)
            assert rocketmq.namesrv

        def test_two(rocketmq):
            assert rocketmq.address not in addresses
        """
    )
    result = pytester.runpytest_subprocess("-q")
    result.assert_outcomes(passed=2)


def test_the_marker_chooses_brokers_settings_and_queues(pytester: pytest.Pytester) -> None:
    """B1: the nearest marker wins; one that is not understood is an error."""
    pytester.makeini("[pytest]\naddopts = --strict-markers")
    pytester.makepyfile(
        """
        import pytest
        from cometmq import Admin

        pytestmark = pytest.mark.rocketmq(settings={"brokerName": "module"})

        def names(rocketmq):
            return [each.broker.context.settings.broker.broker_name for each in rocketmq.brokers]

        def test_of_the_module(rocketmq):
            assert names(rocketmq) == ["module"]

        @pytest.mark.rocketmq(brokers=2, settings={"brokerName": "own"}, queues=1)
        def test_of_its_own(rocketmq, rocketmq_topic):
            assert names(rocketmq) == ["own", "own-1"]
            with Admin(namesrv=rocketmq.namesrv) as admin:
                assert len(admin.queues(rocketmq_topic)) == 2

        @pytest.mark.rocketmq(broker=2)
        def test_with_a_slip(rocketmq):
            pass
        """
    )
    result = pytester.runpytest_subprocess("-q")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines("*the marker rocketmq has no broker, only brokers, settings, queues*")


def test_settings_come_from_the_ini_file_and_a_fixture(pytester: pytest.Pytester) -> None:
    """B1: for brokers of one test and for the shared one; the marker is stronger, then the fixture."""
    pytester.makeini(
        "[pytest]\nrocketmq_settings =\n  brokerName = ini\n  brokerClusterName=ini\n  region = x"
    )
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def rocketmq_settings():
            return {"brokerClusterName": "fixture"}
        """
    )
    pytester.makepyfile(
        """
        import pytest

        def names(rocketmq):
            settings = rocketmq.broker.context.settings.broker
            return settings.broker_name, settings.broker_cluster_name

        def test_shared(rocketmq_session):
            assert names(rocketmq_session) == ("ini", "fixture")

        @pytest.mark.rocketmq(settings={"brokerClusterName": "marker"})
        def test_own(rocketmq):
            assert names(rocketmq) == ("ini", "marker")
        """
    )
    result = pytester.runpytest_subprocess("-q")
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines("*region: a broker has no such setting*")
    pytester.makeini("[pytest]\nrocketmq_settings =\n  brokerName = ini\n  brokerClusterName=ini")
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=2)
    pytester.makeini("[pytest]\nrocketmq_settings = brokerName")
    result = pytester.runpytest_subprocess("-q")
    result.stdout.fnmatch_lines("*'brokerName' is not key=value*")


def test_each_test_has_a_topic_of_its_own_on_the_shared_broker(pytester: pytest.Pytester) -> None:
    """B1: also one with odd parameters, or a long name; the broker is started once."""
    pytester.makepyfile(
        """
        import pytest
        from cometmq import Message, Producer

        seen = set()

        @pytest.mark.parametrize("what", ["a/b", "ü %d", "long" * 100])
        def test_topics(rocketmq_session, rocketmq_topic, what):
            with Producer("tests", namesrv=rocketmq_session.namesrv) as producer:
                assert producer.send(Message(rocketmq_topic, b"x")).queue_offset == 0
            seen.add((rocketmq_session.address, rocketmq_topic))

        def test_they_differ():
            assert len(seen) == 3
            assert len({address for address, topic in seen}) == 1
            assert all(topic.startswith("test_topics-") for address, topic in seen)

        def test_alone(rocketmq_topic, rocketmq_session):
            assert rocketmq_topic == "test_alone-4"
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=5)
