"""`cometmq doctor` finds what is wrong with a cluster, and says nothing about a healthy one (B13)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cometmq import Admin, Message, Producer, PushConsumer, StoredMessage
from cometmq.cli.doctor.groups import unread
from cometmq.model.errors import SendError
from cometmq.model.queue import MessageQueue
from cometmq.ports.clock import Clock, SystemClock
from cometmq.ports.disk import DiskUsage, SystemDisk
from cometmq.store.status import Trouble
from cometmq.testing import EmbeddedBroker
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere
from tests.integration.cli.cli_kit import Cometmq, send_all
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def disk_with_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """How full the disk of the machine is that runs the tests is not what they are about."""
    monkeypatch.setattr(SystemDisk, "usage", lambda self, path: DiskUsage(1000, 400, 600))


@pytest.fixture
def rocketmq() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def findings(namesrv: str, *arguments: str) -> list[dict[str, Any]]:
    """What the doctor finds; the exit code has to go with it."""
    ended = Cometmq(namesrv)("doctor", "--sample", "0.5", *arguments, "--json")
    found: list[dict[str, Any]] = ended.json["findings"]
    assert ended.json["healthy"] == (not found)
    assert ended.code == (1 if found else 0)
    assert all(each["advice"] for each in found)
    return found


def checks(namesrv: str, *arguments: str) -> list[str]:
    return [each["check"] for each in findings(namesrv, *arguments)]


@contextmanager
def consumers(namesrv: str, group: str, topic: str, *expressions: str) -> Iterator[None]:
    """As many members of a group, which consume at once what they get."""
    running = []
    for number, expression in enumerate(expressions):
        consumer = PushConsumer(
            group,
            namesrv=namesrv,
            instance_name=f"{group}-{number}",
            persist_consumer_offset_interval_ms=50,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        consumer.subscribe(topic, expression)(lambda message: None)
        consumer.start()
        running.append(consumer)
    try:
        yield
    finally:
        for consumer in running:
            consumer.stop()


def lag(namesrv: str, group: str, topic: str) -> int:
    with Admin(namesrv=namesrv) as admin:
        progress = admin.consumer_progress(group, topic)
        return sum(map(unread, progress.values())) if progress else -1


def test_a_healthy_cluster_gets_one_line(rocketmq: EmbeddedBroker) -> None:
    """Two brokers, topics on both, and a group that keeps up."""
    with EmbeddedBroker(settings={"brokerName": "second"}, namesrv=rocketmq.namesrv):
        cometmq = Cometmq(rocketmq.namesrv)
        cometmq.ok("topic", "create", "orders", "--queues", "2")
        send_all(rocketmq.namesrv, [Message("orders", b"x")] * 10)
        with consumers(rocketmq.namesrv, "billing", "orders", "*", "*"):
            wait_until(lambda: lag(rocketmq.namesrv, "billing", "orders"), "all consumed", lambda at: at == 0)
            ended = cometmq.ok("doctor")
    assert ended.out == "healthy: 1 name server, 2 brokers, 1 topic and 1 group\n"
    assert ended.err == ""


def test_an_advertised_address_that_cannot_be_reached() -> None:
    """The usual trap in containers: the broker runs, and tells clients an address of the inside."""
    with EmbeddedBroker(settings={"brokerIP1": "127.0.0.2"}) as rocketmq:
        (found,) = findings(rocketmq.namesrv)
        assert found["check"] == "broker-unreachable"
        assert "127.0.0.2" in found["text"]
        assert "brokerIP1" in found["advice"]


def test_a_broker_that_no_name_server_knows(rocketmq: EmbeddedBroker) -> None:
    """B1: asked by its address, it says which name servers it tries."""
    with EmbeddedBroker(settings={"namesrvAddr": "127.0.0.1:1", "brokerName": "lonely"}) as lonely:
        (found,) = findings(rocketmq.namesrv, "--broker", lonely.address)
        assert found["check"] == "broker-unregistered"
        assert found["level"] == "error"
        assert "it tries 127.0.0.1:1" in found["text"]
        assert "useTLS=true" in found["advice"]
        assert checks(rocketmq.namesrv, "--broker", rocketmq.address) == [], "that one is registered"
        address = lonely.address
    (gone,) = findings(rocketmq.namesrv, "--broker", address)
    assert "nothing answers at" in gone["text"]


def test_a_dead_name_server(rocketmq: EmbeddedBroker) -> None:
    (found,) = findings(f"{rocketmq.namesrv};127.0.0.1:1")
    assert (found["check"], found["subject"]) == ("name-server-unreachable", "127.0.0.1:1")


def test_no_name_server_at_all_is_a_finding_too() -> None:
    assert checks("127.0.0.1:1") == ["name-server-unreachable"]


class AheadClock:
    """A clock that somebody has set wrong."""

    def __init__(self, clock: Clock, ahead_ms: int) -> None:
        self._clock = clock
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._ahead_ms

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()


@pytest.mark.parametrize(("ahead_s", "way"), [(60, "ahead of"), (-60, "behind")])
def test_a_clock_that_is_a_minute_off(rocketmq: EmbeddedBroker, ahead_s: int, way: str) -> None:
    rocketmq.broker.context.clock = AheadClock(SystemClock(), ahead_s * 1000)
    (found,) = findings(rocketmq.namesrv)
    assert found["check"] == "clock"
    assert f" s {way} that of this machine" in found["text"]


def test_a_disk_that_is_nearly_full(rocketmq: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def nearly_full(self: SystemDisk, path: Path) -> DiskUsage:
        return DiskUsage(1000, 930, 70)

    monkeypatch.setattr(SystemDisk, "usage", nearly_full)
    (found,) = findings(rocketmq.namesrv)
    assert found["check"] == "disk"
    assert "93% full" in found["text"]


def test_a_store_without_room_is_recognised_by_everybody(rocketmq: EmbeddedBroker) -> None:
    """B5, B9: the sender, `doctor` and `cluster status` say why, and what to do."""
    command, flags = Cometmq(rocketmq.namesrv), rocketmq.broker.context.store.flags
    reason = "the disk of the log is too full (diskSpaceWarningLevelRatio)"
    advice = "make room, or keep messages for a shorter time (fileReservedTime)"
    assert command.ok("cluster", "status", "--json").json["brokers"][0]["state"] == "ok"
    rocketmq.call(rocketmq.create_topic("orders", queues=1))
    flags.set(Trouble.DISK_FULL)
    try:
        (found,) = findings(rocketmq.namesrv)
        assert (found["check"], found["advice"]) == ("store", advice)
        assert found["text"] == f"embedded refuses messages: {reason}"
        status = command("cluster", "status", "--json")
        assert (status.code, status.json["brokers"][0]["trouble"]) == (1, f"{reason}; {advice}")
        with (
            Producer("shop", namesrv=rocketmq.namesrv, retry_times=0) as producer,
            pytest.raises(SendError) as failed,
        ):
            producer.send(Message("orders", b"x"))
        assert f"{reason}; {advice}" in str(failed.value)
    finally:
        flags.set(Trouble.DISK_FULL, on=False)
    assert command("cluster", "status").code == 0
    assert findings(rocketmq.namesrv) == []


def test_two_subscriptions_in_one_group(rocketmq: EmbeddedBroker) -> None:
    rocketmq.call(rocketmq.create_topic("orders", queues=2))
    with consumers(rocketmq.namesrv, "billing", "orders", "paid", "refunded"):
        found = wait_until(lambda: findings(rocketmq.namesrv), "the difference is found")
    assert [(each["check"], each["subject"]) for each in found] == [("subscriptions-differ", "billing")]
    assert "paid" in found[0]["text"]
    assert "refunded" in found[0]["text"]


def test_a_group_without_members_whose_lag_grows(rocketmq: EmbeddedBroker) -> None:
    rocketmq.call(rocketmq.create_topic("orders", queues=2))
    send_all(rocketmq.namesrv, [Message("orders", b"x")] * 4)
    with consumers(rocketmq.namesrv, "billing", "orders", "*"):
        wait_until(lambda: lag(rocketmq.namesrv, "billing", "orders"), "all consumed", lambda at: at == 0)
    send_all(rocketmq.namesrv, [Message("orders", b"x")] * 4)
    assert checks(rocketmq.namesrv) == []  # what waits does not grow
    done = threading.Event()

    def send() -> None:
        with Producer("growing", namesrv=rocketmq.namesrv) as producer:
            while not done.is_set():
                producer.send(Message("orders", b"x"))
                done.wait(0.02)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        (found,) = findings(rocketmq.namesrv)
    finally:
        done.set()
        sender.join()
    assert (found["check"], found["subject"]) == ("lag-without-members", "billing")


def test_one_hot_queue(rocketmq: EmbeddedBroker) -> None:
    rocketmq.call(rocketmq.create_topic("orders", queues=4))
    with Producer("hot", namesrv=rocketmq.namesrv) as producer:
        for number, count in enumerate((100, 100, 1200, 100)):
            queue = MessageQueue("orders", "embedded", number)
            producer.send_batch([Message("orders", b"x")] * count, queue=queue)
    (found,) = findings(rocketmq.namesrv)
    assert found["check"] == "hot-queue"
    assert "queue 2 of topic orders on embedded has 1200 messages" in found["text"]


def test_write_permission_that_was_wiped(rocketmq: EmbeddedBroker) -> None:
    rocketmq.call(rocketmq.create_topic("orders", queues=1))
    Cometmq(rocketmq.namesrv).ok("cluster", "wipe-write", "embedded", "--yes")
    (found,) = findings(rocketmq.namesrv)
    assert found["check"] == "write-permission-wiped"
    assert found["advice"].endswith("cometmq cluster add-write embedded")
    Cometmq(rocketmq.namesrv).ok("cluster", "add-write", "embedded")
    assert checks(rocketmq.namesrv) == []


def test_a_topic_on_one_of_two_brokers_only(rocketmq: EmbeddedBroker) -> None:
    with EmbeddedBroker(settings={"brokerName": "second"}, namesrv=rocketmq.namesrv):
        rocketmq.call(rocketmq.create_topic("orders", queues=3))
        (found,) = findings(rocketmq.namesrv)
        assert found["check"] == "topic-placement"
        assert found["text"] == "topic orders is on embedded, and not on second"
        command = found["advice"].split("cometmq ")[1].split()
        Cometmq(rocketmq.namesrv).ok(*command)
        assert checks(rocketmq.namesrv) == []


def test_a_broker_from_another_cluster(rocketmq: EmbeddedBroker) -> None:
    settings = {"brokerName": "stray", "brokerClusterName": "Elsewhere"}
    with EmbeddedBroker(settings=settings, namesrv=rocketmq.namesrv):
        (found,) = findings(rocketmq.namesrv)
        assert (found["check"], found["subject"]) == ("foreign-cluster", "Elsewhere")
        assert "stray" in found["text"]
        assert checks(rocketmq.namesrv, "--cluster", "DefaultCluster") == []


def test_a_consumer_that_hangs(rocketmq: EmbeddedBroker) -> None:
    """Members are there, and nothing moves."""
    rocketmq.call(rocketmq.create_topic("orders", queues=1))
    released, held = threading.Event(), threading.Event()
    consumer = PushConsumer(
        "billing",
        namesrv=rocketmq.namesrv,
        persist_consumer_offset_interval_ms=50,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )

    @consumer.subscribe("orders")
    def hang(message: StoredMessage) -> None:
        if message.body == b"hang":
            held.set()
            released.wait(60)

    with consumer:
        try:
            send_all(rocketmq.namesrv, [Message("orders", b"x")])
            wait_until(lambda: lag(rocketmq.namesrv, "billing", "orders"), "one consumed", lambda at: at == 0)
            send_all(rocketmq.namesrv, [Message("orders", b"hang")])
            assert held.wait(30)
            (found,) = findings(rocketmq.namesrv, "--behind", "0.1")
            assert checks(rocketmq.namesrv, "--behind", "600") == []
        finally:
            released.set()
    assert (found["check"], found["subject"]) == ("stuck-queues", "billing")
    assert "orders@embedded:0" in found["text"]


def test_findings_for_people_say_what_to_do(rocketmq: EmbeddedBroker) -> None:
    ended = Cometmq(f"{rocketmq.namesrv};127.0.0.1:1")("doctor")
    assert ended.code == 1
    first, second, last = ended.out.splitlines()
    assert first.startswith("error: the name server at 127.0.0.1:1 does not answer")
    assert second.startswith("  what to do: start it")
    assert last == "1 finding in 2 name servers, 1 broker, 0 topics and 0 groups"


def test_what_is_left_out_is_said(rocketmq: EmbeddedBroker) -> None:
    for number in range(3):
        rocketmq.call(rocketmq.create_topic(f"topic-{number}", queues=1))
    ended = Cometmq(rocketmq.namesrv).ok("doctor", "--limit", "2")
    assert "only 2 of 3 topics were looked at" in ended.err
