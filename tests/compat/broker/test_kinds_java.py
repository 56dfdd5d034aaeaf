"""Apache's Java client 5.3 on our broker: transactions, timed messages, requests and replies, recall."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from tests.answers import now_ms
from tests.compat.broker.kinds_client import COMMIT, ROLLBACK, UNKNOWN, KindsClient
from tests.compat.client.subject import Subject, running_subject
from tests.compat.client.suite_sending import texts
from tests.compat.foreign import ForeignError, fresh
from tests.waiting import wait_until

CHECK_MS = 1_000
# Far above what it takes: a busy machine may let everybody wait.
LATEST_LATE_MS = 6_000
QUICK = {
    "transactionCheckInterval": str(CHECK_MS),
    "transactionTimeOut": str(CHECK_MS),
    "transactionOpBatchInterval": "100",
    "mappedFileSizeTimerLog": "1048576",
    "recallMessageEnable": "true",
    "flushDiskType": "SYNC_FLUSH",
}


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    with running_subject(tmp_path_factory.mktemp("kinds"), QUICK) as running:
        yield running


@contextmanager
def client_of(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KindsClient]:
    with KindsClient(tmp_path_factory.mktemp("client"), subject.namesrv.address) as client:
        yield client


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory, subject: Subject) -> Iterator[KindsClient]:
    with client_of(subject, tmp_path_factory) as client:
        yield client


@pytest.fixture
def other_java(tmp_path_factory: pytest.TempPathFactory, subject: Subject) -> Iterator[KindsClient]:
    """Another process of the same kind, to be killed."""
    with client_of(subject, tmp_path_factory) as client:
        yield client


def start_again(subject: Subject) -> None:
    subject.broker.start()
    subject.broker.wait_registered(subject.namesrv.address)


class TestTransactions:
    def test_what_is_committed_is_delivered_and_what_is_rolled_back_is_not(
        self, subject: Subject, java: KindsClient
    ) -> None:
        """B6: at its end a transaction's message is there once, or never."""
        topic = subject.create_topic(fresh("Ended"))
        consumer = java.push(fresh("G"), topic)
        producer = java.kinds_producer()
        rolled_back = producer.transact(topic, *texts(10, "back"), local=ROLLBACK)
        committed = producer.transact(topic, *texts(10, "forth"), local=COMMIT)
        consumer.wait_for(texts(10, "forth"))
        assert {one.status for one in rolled_back + committed} == {"SEND_OK"}
        assert {one.local for one in committed} == {COMMIT}
        assert sorted(consumer.texts) == texts(10, "forth")
        assert {message.topic for message in consumer.messages} == {topic}
        assert {message.msg_id for message in consumer.messages} == {one.msg_id for one in committed}
        # Those that have ended are no subject of a question: one that is asked about comes after them.
        producer.transact(topic, "asked about", local=UNKNOWN, checks=[COMMIT])
        consumer.wait_for(["asked about"])
        assert set(producer.checks.texts) == {"asked about"}
        assert sorted(consumer.texts) == ["asked about", *texts(10, "forth")]
        consumer.stop()
        producer.stop()

    def test_an_unknown_end_is_asked_about_until_it_is_known(
        self, subject: Subject, java: KindsClient
    ) -> None:
        """B6: the question has the message as it was sent; the answer decides."""
        topic = subject.create_topic(fresh("Asked"))
        consumer = java.push(fresh("G"), topic)
        producer = java.kinds_producer()
        sent_at = now_ms()
        producer.transact(topic, "no", local=UNKNOWN, checks=[UNKNOWN, ROLLBACK])
        producer.transact(topic, "yes", local=UNKNOWN, checks=[UNKNOWN, UNKNOWN, COMMIT])
        consumer.wait_for(["yes"])
        # One more, to see that nothing of "no" comes when its questions are over.
        producer.transact(topic, "last", local=UNKNOWN, checks=[COMMIT])
        consumer.wait_for(["last"])
        assert consumer.texts == ["yes", "last"]
        assert producer.checks.texts.count("no") >= 2
        assert producer.checks.texts.count("yes") >= 3
        for question in producer.checks.messages:
            assert question.topic == topic
            assert question.properties["checks"]
            assert question.at >= sent_at + CHECK_MS
        consumer.stop()
        producer.stop()

    def test_another_producer_of_the_group_answers_for_one_that_was_killed(
        self, subject: Subject, java: KindsClient, other_java: KindsClient
    ) -> None:
        """B3, B6: the group is asked, not the process that sent."""
        topic, group = subject.create_topic(fresh("Inherited")), fresh("PG")
        consumer = java.push(fresh("G"), topic)
        heir, gone = java.kinds_producer(group), other_java.kinds_producer(group)
        heir.transact(topic, "own", local=COMMIT)  # only who has sent something tells the broker of itself
        gone.transact(topic, *texts(5, "no"), local=UNKNOWN, checks=[ROLLBACK])
        gone.transact(topic, *texts(5, "yes"), local=UNKNOWN, checks=[COMMIT])
        other_java.kill()
        consumer.wait_for(texts(5, "yes"))
        heir.checks.wait_for(texts(5, "no"))
        heir.transact(topic, "last", local=UNKNOWN, checks=[COMMIT])
        consumer.wait_for(["last"])
        assert sorted(consumer.texts) == ["last", "own", *texts(5, "yes")]
        consumer.stop()
        heir.stop()

    @pytest.mark.parametrize("ends_when", ["the broker is away", "the broker is back"])
    def test_a_broker_that_is_killed_between_half_and_end_finishes_the_transaction(
        self, subject: Subject, java: KindsClient, ends_when: str
    ) -> None:
        """B4, B6: the half message is on the disk; an end that is lost is asked for."""
        topic = subject.create_topic(fresh("Interrupted"))
        producer = java.kinds_producer()
        commit = producer.begin_held(topic, "yes", local=COMMIT, checks=[COMMIT])
        rollback = producer.begin_held(topic, "no", local=ROLLBACK, checks=[ROLLBACK])
        begun = [("yes", commit), ("no", rollback)]
        subject.broker.kill()
        if ends_when == "the broker is away":
            _let_go(producer.let_go, begun)
        start_again(subject)
        if ends_when == "the broker is back":
            _let_go(producer.let_go, begun)
        consumer = java.push(fresh("G"), topic)
        consumer.wait_for(["yes"])
        producer.transact(topic, "last", local=UNKNOWN, checks=[COMMIT])
        consumer.wait_for(["last"])
        assert set(consumer.texts) == {"yes", "last"}
        if ends_when == "the broker is away":
            assert {"yes", "no"} <= set(producer.checks.texts)
        consumer.stop()
        producer.stop()


def _let_go(let_go: Any, begun: list[tuple[str, Future[Any]]]) -> None:
    for body, future in begun:
        let_go(body)
        future.result(30)


class TestTimers:
    def test_a_message_comes_at_its_time_however_that_is_said(
        self, subject: Subject, java: KindsClient
    ) -> None:
        """B6: relative in milliseconds or seconds, or absolute; never before, soon after, and once."""
        topic = subject.create_topic(fresh("Timed"))
        consumer = java.push(fresh("G"), topic)
        producer = java.kinds_producer()
        due = {}
        for body, form, ahead_ms in (
            ("in 2.5 s", "delayMs", 2_500),
            ("in 2 s", "delaySec", 2_000),
            ("at a time", "deliverMs", 3_300),
            ("soon", "deliverMs", 700),
        ):
            begun = now_ms()
            time = {"delayMs": ahead_ms, "delaySec": ahead_ms // 1000, "deliverMs": begun + ahead_ms}[form]
            producer.send_timed(topic, body, form, time)
            due[body] = begun + ahead_ms
        begun = now_ms()
        producer.send_timed(topic, "long ago", "deliverMs", begun - 5_000)
        due["long ago"] = begun
        messages = consumer.wait_for(list(due))
        assert sorted(consumer.texts) == sorted(due)
        late = {message.text: message.at - due[message.text] for message in messages}
        assert all(0 <= each < LATEST_LATE_MS for each in late.values()), late
        consumer.stop()
        producer.stop()

    @pytest.mark.parametrize("end", ["stop", "kill"])
    def test_timers_go_on_after_a_restart(self, subject: Subject, java: KindsClient, end: str) -> None:
        """B4, B6: what was due meanwhile comes at once, the rest at its time; none is lost."""
        topic = subject.create_topic(fresh("TimedAcross"))
        producer = java.kinds_producer()
        begun = now_ms()
        due = {f"message-{number}": begun + 1_000 + 300 * number for number in range(20)}
        for body, deliver_ms in due.items():
            producer.send_timed(topic, body, "deliverMs", deliver_ms)
        getattr(subject.broker, end)()
        start_again(subject)
        back_ms = now_ms()
        consumer = java.push(fresh("G"), topic)
        messages = consumer.wait_for(list(due))
        stored = {message.text: message.store_timestamp for message in messages}
        assert all(stored[body] >= deliver_ms for body, deliver_ms in due.items())
        late = {body: stored[body] - max(deliver_ms, back_ms) for body, deliver_ms in due.items()}
        assert all(each < LATEST_LATE_MS for each in late.values()), late
        if end == "stop":
            assert sorted(consumer.texts) == sorted(due)
        consumer.stop()
        producer.stop()

    def test_a_message_that_is_taken_back_does_not_come(self, subject: Subject, java: KindsClient) -> None:
        """B6: by the handle that its sender was given."""
        topic = subject.create_topic(fresh("TakenBack"))
        consumer = java.push(fresh("G"), topic)
        producer = java.kinds_producer()
        unwanted = producer.send_timed(topic, "unwanted", "delayMs", 2_000)
        producer.send_timed(topic, "wanted", "delayMs", 2_000)
        producer.send_timed(topic, "after both", "delayMs", 3_500)
        assert producer.recall(topic, unwanted.recall_handle) == unwanted.msg_id
        consumer.wait_for(["wanted", "after both"])
        assert sorted(consumer.texts) == ["after both", "wanted"]
        consumer.stop()
        producer.stop()


class TestRequests:
    def test_every_requester_gets_its_own_replies(
        self, subject: Subject, java: KindsClient, other_java: KindsClient
    ) -> None:
        """P6, C6: requesters of two processes and of one group; each has the reply to its question."""
        topic = subject.create_topic(fresh("Questions"))
        replier = java.reply(fresh("G"), topic)
        group = fresh("PG")
        requesters = [client.kinds_producer(group) for client in (java, java, other_java)]
        pending = {
            f"{requester.name} asks {number}": requester.begin_request(
                topic, f"{requester.name} asks {number}", 20_000
            )
            for number in range(8)
            for requester in requesters
        }
        for question, reply in pending.items():
            assert reply.result(30) == f"re: {question}"
        replier.wait_for(list(pending))
        assert sorted(replier.texts) == sorted(pending)
        replier.stop()
        for requester in requesters:
            requester.stop()

    def test_a_reply_that_comes_too_late_is_nobodys(self, subject: Subject, java: KindsClient) -> None:
        """P6: the requester has given up, the replier is not to blame, and the next request is answered."""
        topic = subject.create_topic(fresh("Slow"), queues=1)
        requester = java.kinds_producer()
        slow = java.reply(fresh("G"), topic, sleep_ms=3_000)
        with pytest.raises(ForeignError, match="RequestTimeoutException"):
            requester.begin_request(topic, "hurry", 1_000).result(30)
        slow.wait_for(["hurry"])  # the reply was sent, and accepted
        assert requester.begin_request(topic, "take your time", 20_000).result(30) == "re: take your time"
        slow.wait_for(["take your time"])
        assert slow.texts == ["hurry", "take your time"]
        slow.stop()
        requester.stop()

    def test_a_requester_that_is_gone_does_not_keep_the_others_from_their_replies(
        self, subject: Subject, java: KindsClient, other_java: KindsClient
    ) -> None:
        topic = subject.create_topic(fresh("Gone"), queues=1)
        gone, here = other_java.kinds_producer(), java.kinds_producer()
        gone.begin_request(topic, "from one that is gone", 20_000)
        wait_until(lambda: subject.ends_of(topic, queues=1) == [1], seconds=20, what="the question is there")
        other_java.kill()
        reply = here.begin_request(topic, "still here", 25_000)
        replier = java.reply(fresh("G"), topic)
        assert reply.result(30) == "re: still here"
        replier.stop()
        here.stop()
