"""The doctor's checks on facts that are hard to bring about on a running cluster."""

from __future__ import annotations

from typing import Any

import pytest

from cometmq.cli.doctor.facts import BrokerFacts, Facts, GroupFacts, clock_ahead
from cometmq.cli.doctor.groups import Waiting, _judge, check_subscriptions
from cometmq.cli.doctor.servers import (
    check_brokers,
    check_disks,
    check_name_servers,
    check_permissions,
    check_set_aside,
    check_takeovers,
    check_versions,
)
from cometmq.client.admin.results import ClusterInfo, GroupConnection, GroupMember, MemberInfo, QueueProgress
from cometmq.model.queue import MessageQueue
from cometmq.model.route import BrokerData, Takeover
from cometmq.wire.bodies.heartbeat import SubscriptionData

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000
CONFIG = {"brokerName": "a", "brokerClusterName": "C", "fileReservedTime": "72"}
QUEUE = MessageQueue("orders", "a", 0)


def broker(**facts: Any) -> BrokerFacts:
    return BrokerFacts(
        **{"cluster": "C", "name": "a", "broker_id": 0, "address": "h:1", "config": CONFIG, **facts}
    )


def names(findings: Any) -> list[str]:
    return [finding.check for finding in findings]


def test_name_servers_that_know_different_brokers() -> None:
    both = ClusterInfo({"a": BrokerData("C", "a", {0: "h:1"}), "b": BrokerData("C", "b", {0: "h:2"})}, {})
    one = ClusterInfo({"a": BrokerData("C", "a", {0: "h:1"})}, {})
    (found,) = check_name_servers(Facts(name_servers={"ns1": both, "ns2": one}))
    assert (found.check, found.subject) == ("name-servers-disagree", "ns2")
    assert "does not know b" in found.text


def test_a_name_and_id_that_two_addresses_have() -> None:
    """Told by a name server of ours, or seen by comparing name servers of any kind."""

    def moved(count: int) -> ClusterInfo:
        takeover = Takeover(0, "a", "C", count, NOW_MS, new_addr="evil:1", old_addr="h:1")
        return ClusterInfo({"a": BrokerData("C", "a", {0: "evil:1"})}, {}, (takeover,))

    (once,) = check_takeovers(Facts(name_servers={"ns1": moved(1)}))
    assert (once.check, once.level, once.subject) == ("route-takeover", "warning", "a")
    assert "a with id 0 is registered from evil:1 and from h:1" in once.text
    (again,) = check_takeovers(Facts(name_servers={"ns1": moved(7), "ns2": moved(1)}))
    assert (again.level, "7 times" in again.text) == ("error", True)
    assert "firewall" in again.advice
    plain = ClusterInfo({"a": BrokerData("C", "a", {0: "h:1", 1: "h:3"})}, {})
    other = ClusterInfo({"a": BrokerData("C", "a", {0: "h:2"})}, {})
    assert names(check_takeovers(Facts(name_servers={"ns1": plain, "ns2": other}))) == ["route-takeover"]
    assert names(check_takeovers(Facts(name_servers={"ns1": plain, "ns2": plain}))) == []
    assert names(check_takeovers(Facts(cluster="D", name_servers={"ns1": moved(1)}))) == []


def test_no_broker_no_master_and_a_broker_that_is_another_one() -> None:
    info = ClusterInfo({}, {})
    assert names(check_brokers(Facts(name_servers={"ns": info}))) == ["no-broker"]
    assert names(check_brokers(Facts(brokers=[broker(broker_id=1)]))) == ["no-master"]
    other = broker(config={**CONFIG, "brokerName": "b"})
    assert names(check_brokers(Facts(brokers=[other]))) == ["broker-identity"]
    assert names(check_brokers(Facts(brokers=[broker()]))) == []


def test_brokers_of_different_versions() -> None:
    mixed = [broker(info={"brokerVersionDesc": version}) for version in ("V5_3_3", "V5_3_1")]
    assert names(check_versions(Facts(brokers=mixed))) == ["versions"]
    assert names(check_versions(Facts(brokers=mixed[:1] * 2))) == []


@pytest.mark.parametrize(
    ("kept_hours", "deleted_bytes", "found"),
    [(10, 1 << 30, ["retention"]), (71, 1 << 30, []), (10, 0, []), (100, 1 << 30, [])],
)
def test_messages_that_are_deleted_before_their_time(
    kept_hours: int, deleted_bytes: int, found: list[str]
) -> None:
    info = {
        "earliestMessageTimeStamp": str(NOW_MS - kept_hours * HOUR_MS),
        "commitLogMinOffset": str(deleted_bytes),
    }
    assert names(check_disks(Facts(brokers=[broker(info=info)]), NOW_MS)) == found


def test_a_broker_that_is_set_to_be_read_only() -> None:
    facts = Facts(brokers=[broker(config={**CONFIG, "brokerPermission": "4"})])
    assert names(check_permissions(facts)) == ["read-only"]


@pytest.mark.parametrize(
    ("runtime", "ahead_ms"),
    [
        ("[ 0 days, 0 hours, 1 minutes, 0 seconds ]", 0),
        ("[ 0 days, 0 hours, 2 minutes, 0 seconds ]", 59_900),
        ("[ 0 days, 0 hours, 0 minutes, 0 seconds ]", -59_000),
        ("[ -1 days, 23 hours, 59 minutes, 0 seconds ]", -119_000),
        ("unknown", None),
    ],
)
def test_the_clock_of_a_broker_is_when_it_started_and_how_long_it_runs(
    runtime: str, ahead_ms: int | None
) -> None:
    """Only what neither the second it is rounded to nor the time of the question can explain."""
    info = {"bootTimestamp": str(NOW_MS - 60_000), "runtime": runtime}
    assert clock_ahead(info, NOW_MS, NOW_MS + 100) == ahead_ms


def group(*reads: dict[str, str]) -> GroupFacts:
    members = {
        f"client-{number}": MemberInfo(tuple(SubscriptionData(topic, what) for topic, what in each.items()))
        for number, each in enumerate(reads)
    }
    connection = GroupConnection(tuple(GroupMember(name) for name in members))
    return GroupFacts(connections={"a": connection}, members=members)


def test_members_that_say_themselves_that_they_read_different_things() -> None:
    """Apache's broker does not say so; its clients do when they are asked."""
    same = group({"orders": "*", "%RETRY%g": "*"}, {"orders": "*", "%RETRY%h": "*"}, {})
    assert names(check_subscriptions(Facts(groups={"g": same}))) == []
    differ = group({"orders": "*"}, {"payments": "*"})
    (found,) = check_subscriptions(Facts(groups={"g": differ}))
    assert found.check == "subscriptions-differ"
    assert "client-0 reads orders * (TAG), and client-1 reads payments * (TAG)" in found.text


@pytest.mark.parametrize(
    ("before", "after", "waiting", "found"),
    [
        ((100, 10), (100, 10), Waiting(120_000, 0), ["stuck-queues"]),
        ((100, 10), (200, 20), Waiting(120_000, 0), ["growing-lag"]),
        ((100, 10), (200, 20), Waiting(1_000, 0), []),
        ((100, 10), (100, 10), Waiting(1_000, 0), []),
        ((100, 10), (100, 90), Waiting(120_000, 0), []),
        ((100, 10), (100, 90), Waiting(1_000, 5), ["expired-unread"]),
    ],
)
def test_a_group_with_members_is_judged_by_what_moves_and_how_long_messages_wait(
    before: tuple[int, int], after: tuple[int, int], waiting: Waiting, found: list[str]
) -> None:
    """Broker offset and consumer offset, at two looks."""
    facts = Facts(groups={"g": group({"orders": "*"})})
    looks = [{"g": {QUEUE: QueueProgress(*each)}} for each in (before, after)]
    assert names(_judge("g", facts, looks[0], looks[1], {QUEUE: waiting}, 60_000)) == found


@pytest.mark.parametrize(
    ("info", "found"),
    [({}, []), ({"setAsideRecords": "0"}, []), ({"setAsideRecords": "3"}, ["set-aside-records"])],
)
def test_records_that_were_set_aside_are_told(info: dict[str, str], found: list[str]) -> None:
    assert names(check_set_aside(Facts(brokers=[broker(info=info)]))) == found


@pytest.mark.parametrize("text", ["9" * 5000, "soon", "-1", "1_0", "NaN", ""])
def test_numbers_that_a_broker_cannot_mean_are_passed_over(text: str) -> None:
    strange = broker(
        info={
            "commitLogMinOffset": text,
            "earliestMessageTimeStamp": text,
            "bootTimestamp": text,
            "runtime": text,
        },
        config={"fileReservedTime": text, "brokerPermission": text},
    )
    facts = Facts(brokers=[strange])
    assert names(check_disks(facts, NOW_MS)) == []
    assert names(check_permissions(facts)) == []
    assert clock_ahead(strange.info, NOW_MS, NOW_MS) is None
