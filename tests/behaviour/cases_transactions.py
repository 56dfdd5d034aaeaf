"""What messages in transactions do, whoever the broker is.

The fixture `asking_server` is one whose broker soon asks about transactions of whose end it has not heard.
"""

from __future__ import annotations

import asyncio

import pytest

from cometmq.client.blocking import producer as blocking_transactions
from cometmq.client.producer.transactions import (
    OpenTransaction,
    TransactionCheck,
    TransactionProducer,
    TransactionState,
)
from cometmq.model.message import Message, StoredMessage
from tests.behaviour.consumer_kit import Seen, push, send
from tests.behaviour.server import Server
from tests.waiting import eventually

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


class Checks:
    """A check that remembers what it was asked, and answers by the body of the message."""

    def __init__(self, **answers: TransactionState) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, message: StoredMessage) -> TransactionState:
        body = message.body.decode()
        self.asked.append(body)
        return self.answers.get(body, UNKNOWN)


def producer_of(server: Server, group: str, check: TransactionCheck) -> TransactionProducer:
    return TransactionProducer(group, check=check, namesrv=server.namesrv)


async def test_a_transaction_is_visible_when_it_commits_and_not_before(server: Server) -> None:
    """B6, P6."""
    topic, seen = await server.new_topic(queues=1), Seen()
    consumer = push(server, server.new_name("group"))
    consumer.subscribe(topic, listener=seen)
    group = server.new_name("producers")
    async with consumer, producer_of(server, group, Checks()) as producer, server.admin() as admin:
        message = Message(topic, b"paid", tags="t", keys=["k"], properties={"shop": "x"})
        async with producer.transaction(message) as transaction:
            assert await admin.max_offset(transaction.receipt.queue) == 0
        assert await seen.reaches(1) == ["paid"]
    (message_seen,) = seen.messages
    assert message_seen.msg_id == transaction.transaction_id
    assert (message_seen.topic, message_seen.tags, message_seen.keys) == (topic, "t", ("k",))
    assert message_seen.user_properties.items() >= {"shop": "x"}.items()


async def test_a_transaction_that_is_rolled_back_is_never_seen(server: Server) -> None:
    """B6, P6."""
    topic, seen = await server.new_topic(queues=1), Seen()
    async with producer_of(server, server.new_name("producers"), Checks()) as producer:
        with pytest.raises(ValueError, match="no money"):
            async with producer.transaction(Message(topic, b"never")):
                raise ValueError("no money")
        async with producer.transaction(Message(topic, b"seen")):
            pass
    consumer = push(server, server.new_name("group"))
    consumer.subscribe(topic, listener=seen)
    async with consumer:
        await send(server, topic, ["last"])
        assert sorted(await seen.reaches(2)) == ["last", "seen"]


async def test_a_listener_decides(server: Server) -> None:
    """P6."""
    topic, seen = await server.new_topic(queues=1), Seen()

    class Listener(Checks):
        async def execute(self, transaction: OpenTransaction, arg: object) -> TransactionState:
            assert isinstance(arg, TransactionState)
            return arg

        def check(self, message: StoredMessage) -> TransactionState:
            return self(message)

    consumer = push(server, server.new_name("group"))
    consumer.subscribe(topic, listener=seen)
    async with (
        consumer,
        TransactionProducer(
            server.new_name("producers"), listener=Listener(), namesrv=server.namesrv
        ) as producer,
    ):
        rolled_back = await producer.send_in_transaction(Message(topic, b"never"), ROLLBACK)
        committed = await producer.send_in_transaction(Message(topic, b"seen"), COMMIT)
        assert await seen.reaches(1) == ["seen"]
    assert (rolled_back.state, committed.state) == (ROLLBACK, COMMIT)


async def test_the_broker_asks_about_what_was_left_open(asking_server: Server) -> None:
    """B6, C6."""
    server = asking_server
    topic, seen = await server.new_topic(queues=1), Seen()
    checks = Checks(commit=COMMIT, rollback=ROLLBACK)
    consumer = push(server, server.new_name("group"))
    consumer.subscribe(topic, listener=seen)
    async with consumer, producer_of(server, server.new_name("producers"), checks) as producer:
        for body in (b"rollback", b"commit"):
            async with producer.transaction(Message(topic, body)) as transaction:
                transaction.decide(UNKNOWN)
        await eventually(lambda: set(checks.asked) == {"rollback", "commit"}, "both are asked about")
        await eventually(lambda: "commit" in seen.bodies, "what the check committed is consumed")
        await send(server, topic, ["last"])
        await eventually(lambda: "last" in seen.bodies, "what came after it is consumed")
        # A broker that has no answer yet asks again, and each answer commits.
        assert set(seen.bodies) == {"commit", "last"}


async def test_while_a_block_runs_the_broker_is_told_that_nobody_knows(asking_server: Server) -> None:
    """C6: and the check is not asked about what this process knows itself."""
    server = asking_server
    topic, seen, checks = await server.new_topic(queues=1), Seen(), Checks(slow=ROLLBACK, other=COMMIT)
    consumer = push(server, server.new_name("group"))
    consumer.subscribe(topic, listener=seen)
    async with consumer, producer_of(server, server.new_name("producers"), checks) as producer:
        async with producer.transaction(Message(topic, b"slow")):
            async with producer.transaction(Message(topic, b"other")) as other:
                other.decide(UNKNOWN)
            # The broker asks about the older one first; when it has asked about the other, it has asked.
            await eventually(lambda: "other" in seen.bodies, "the other one is consumed")
            assert set(seen.bodies) == {"other"}
        await eventually(lambda: "slow" in seen.bodies, "the slow one is consumed")
    assert set(seen.bodies) == {"other", "slow"}
    assert set(checks.asked) == {"other"}


async def test_after_a_restart_the_check_of_another_process_answers(asking_server: Server) -> None:
    """C6: the producer that began the transaction is gone; one of the same group, just started, is asked."""
    server = asking_server
    topic, group, seen = await server.new_topic(queues=1), server.new_name("producers"), Seen()
    async with producer_of(server, group, Checks()) as crashed:
        transaction = crashed.transaction(Message(topic, b"half"))
        await transaction.begin()
    checks = Checks(half=COMMIT)
    consumer = push(server, server.new_name("group"))
    consumer.subscribe(topic, listener=seen)
    async with consumer, producer_of(server, group, checks):
        await seen.reaches(1)
    assert set(seen.bodies) == {"half"}
    assert set(checks.asked) == {"half"}


async def test_the_blocking_transaction_producer_does_the_same(server: Server) -> None:
    """P6."""
    topic, seen = await server.new_topic(queues=1), Seen()

    def use() -> None:
        with blocking_transactions.TransactionProducer(
            server.new_name("producers"), check=Checks(), namesrv=server.namesrv
        ) as producer:
            with producer.transaction(Message(topic, b"one")):
                pass
            with pytest.raises(ValueError, match="no money"), producer.transaction(Message(topic, b"two")):
                raise ValueError("no money")
            with producer.transaction(Message(topic, b"three")):
                pass

    await asyncio.to_thread(use)
    consumer = push(server, server.new_name("group"))
    consumer.subscribe(topic, listener=seen)
    async with consumer:
        assert sorted(await seen.reaches(2)) == ["one", "three"]
