"""Messages in transactions, with brokers that do what the test tells them."""

from __future__ import annotations

import asyncio
import logging

import pytest

from cometmq.client.blocking import producer as blocking_transactions
from cometmq.client.producer.transactions import OpenTransaction, TransactionProducer, TransactionState
from cometmq.model.errors import ClientError, SendError, StateError
from cometmq.model.message import Message, StoredMessage
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.send import CheckTransactionStateRequest
from cometmq.wire.record.codec import Record, encode_record
from cometmq.wire.record.properties import encode_properties
from tests.integration.client.client_kit import TOPIC, FakeBroker, FakeCluster, running_cluster
from tests.waiting import eventually

GROUP = "shop"
PREPARED, COMMIT, ROLLBACK, UNKNOWN = 4, 8, 12, 0


class Checks:
    """A check that remembers what it was asked."""

    def __init__(self, answer: TransactionState = TransactionState.COMMIT) -> None:
        self.answer = answer
        self.asked: list[StoredMessage] = []

    def __call__(self, message: StoredMessage) -> TransactionState:
        self.asked.append(message)
        return self.answer


class Listener(Checks):
    """A listener whose local transaction does what it is told."""

    def __init__(self, outcome: TransactionState | Exception | None) -> None:
        super().__init__()
        self.outcome = outcome
        self.executed: list[tuple[str, object]] = []

    def execute(self, transaction: OpenTransaction, arg: object) -> TransactionState | None:
        self.executed.append((transaction.transaction_id, arg))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def check(self, message: StoredMessage) -> TransactionState:
        return self(message)


def producer_of(cluster: FakeCluster, checks: Checks | None = None, **options: object) -> TransactionProducer:
    options = {"topics": [TOPIC], **options}
    return TransactionProducer(GROUP, check=checks or Checks(), namesrv=cluster.namesrv, **options)  # type: ignore[arg-type]


def ask(broker: FakeBroker, msg_id: str, *, group: str = GROUP, topic: str = TOPIC) -> None:
    """Have a broker ask about a transaction, as it does when it has not heard of its end."""
    properties = encode_properties({"UNIQ_KEY": msg_id, "PGROUP": group, "TRAN_MSG": "true"})
    header = CheckTransactionStateRequest(
        topic=topic,
        tran_state_table_offset=77,
        commit_log_offset=88,
        msg_id=msg_id,
        transaction_id=msg_id,
        target_broker_name=broker.name,
    )
    body = bytes(encode_record(Record(topic, b"half", properties)))
    broker.connections[-1].oneway(RequestCode.CHECK_TRANSACTION_STATE, header, body)


async def test_a_block_that_ends_well_commits_what_it_sent_as_a_half() -> None:
    """P6."""
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        (broker,) = cluster.brokers
        async with producer.transaction(Message(TOPIC, b"paid", tags="t", keys=["k"])) as transaction:
            (half,) = broker.received
            assert half.header.sys_flag == PREPARED
            assert half.properties["TRAN_MSG"] == "true"
            assert half.properties["PGROUP"] == GROUP
            assert half.properties["UNIQ_KEY"] == transaction.transaction_id
            assert transaction.receipt.queue.topic == TOPIC
            assert broker.ended == []
        await eventually(lambda: len(broker.ended) == 1, "the broker is told of the end")
        (end,) = broker.ended
    assert end.commit_or_rollback == COMMIT
    assert (end.producer_group, end.topic, end.msg_id) == (GROUP, TOPIC, transaction.transaction_id)
    assert end.tran_state_table_offset == transaction.receipt.queue_offset
    assert end.commit_log_offset == 0
    assert end.target_broker_name == "broker-a"
    assert not end.from_transaction_check


async def test_a_block_that_raises_rolls_back() -> None:
    """P6."""
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        with pytest.raises(ValueError, match="no money"):
            async with producer.transaction(Message(TOPIC, b"paid")):
                raise ValueError("no money")
        (broker,) = cluster.brokers
        await eventually(lambda: len(broker.ended) == 1, "the broker is told of the end")
        assert broker.ended[0].commit_or_rollback == ROLLBACK


async def test_a_block_may_decide_otherwise() -> None:
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        async with producer.transaction(Message(TOPIC, b"paid")) as transaction:
            transaction.decide(TransactionState.UNKNOWN)
        (broker,) = cluster.brokers
        await eventually(lambda: len(broker.ended) == 1, "the broker is told of the end")
        assert broker.ended[0].commit_or_rollback == UNKNOWN


async def test_a_half_that_is_not_stored_safely_is_rolled_back_at_once() -> None:
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        (broker,) = cluster.brokers
        broker.always = ResponseCode.FLUSH_SLAVE_TIMEOUT
        with pytest.raises(SendError, match="not safely"):
            async with producer.transaction(Message(TOPIC, b"paid")):
                pytest.fail("the block must not run")
        await eventually(lambda: len(broker.ended) == 1, "the broker is told of the end")
        assert broker.ended[0].commit_or_rollback == ROLLBACK


async def test_a_transaction_is_used_once() -> None:
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        transaction = producer.transaction(Message(TOPIC, b"paid"))
        with pytest.raises(ClientError, match="has not begun"):
            _ = transaction.receipt
        async with transaction:
            pass
        with pytest.raises(ClientError, match="used once"):
            await transaction.begin()


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (TransactionState.COMMIT, COMMIT),
        (TransactionState.ROLLBACK, ROLLBACK),
        (None, UNKNOWN),
        (ValueError("database away"), UNKNOWN),
    ],
    ids=["commit", "rollback", "nothing", "error"],
)
async def test_a_listener_runs_the_local_transaction(
    outcome: TransactionState | Exception | None, told: int
) -> None:
    """P6."""
    listener = Listener(outcome)
    async with (
        running_cluster() as cluster,
        TransactionProducer(GROUP, listener=listener, namesrv=cluster.namesrv) as producer,
    ):
        receipt = await producer.send_in_transaction(Message(TOPIC, b"paid"), 42)
        (broker,) = cluster.brokers
        await eventually(lambda: len(broker.ended) == 1, "the broker is told of the end")
        assert broker.ended[0].commit_or_rollback == told
    assert listener.executed == [(receipt.msg_id, 42)]
    assert receipt.state is (outcome if isinstance(outcome, TransactionState) else TransactionState.UNKNOWN)


async def test_a_listener_does_not_run_if_the_half_is_not_stored_safely() -> None:
    listener = Listener(TransactionState.COMMIT)
    async with (
        running_cluster() as cluster,
        TransactionProducer(GROUP, listener=listener, namesrv=cluster.namesrv) as producer,
    ):
        cluster.brokers[0].always = ResponseCode.FLUSH_DISK_TIMEOUT
        receipt = await producer.send_in_transaction(Message(TOPIC, b"paid"))
    assert receipt.state is TransactionState.ROLLBACK
    assert listener.executed == []


async def test_without_a_listener_there_is_only_the_block() -> None:
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        with pytest.raises(ClientError, match="has no listener"):
            await producer.send_in_transaction(Message(TOPIC, b"paid"))
        assert cluster.received == []


async def test_brokers_know_the_producer_before_it_sends_anything() -> None:
    """C6: so that they can ask about transactions of an earlier run."""
    async with running_cluster() as cluster:
        cluster.set_route("TBW102")
        async with producer_of(cluster, topics=[]):
            (beat,) = cluster.brokers[0].heartbeats[:1]
            assert [entry.group_name for entry in beat.producer_data_set] == [GROUP]


async def test_a_producer_starts_without_brokers(caplog: pytest.LogCaptureFixture) -> None:
    async with running_cluster(brokers=0) as cluster:
        await cluster.name_servers[0].stop()
        async with producer_of(cluster):
            assert "brokers do not know producer group" in caplog.text


async def test_a_question_about_an_earlier_run_is_answered_by_the_check() -> None:
    """C6."""
    checks = Checks()
    async with running_cluster() as cluster, producer_of(cluster, checks):
        (broker,) = cluster.brokers
        ask(broker, "EARLIER")
        await eventually(lambda: len(broker.ended) == 1, "the question is answered")
        (end,) = broker.ended
    (message,) = checks.asked
    assert (message.msg_id, message.topic, message.body) == ("EARLIER", TOPIC, b"half")
    assert end.commit_or_rollback == COMMIT
    assert end.from_transaction_check
    assert (end.tran_state_table_offset, end.commit_log_offset) == (77, 88)
    assert (end.producer_group, end.msg_id, end.target_broker_name) == (GROUP, "EARLIER", "broker-a")


async def test_an_open_transaction_is_unknown_and_an_ended_one_is_remembered() -> None:
    checks = Checks(TransactionState.COMMIT)
    async with running_cluster() as cluster, producer_of(cluster, checks) as producer:
        (broker,) = cluster.brokers
        async with producer.transaction(Message(TOPIC, b"paid")) as transaction:
            ask(broker, transaction.transaction_id)
            await eventually(lambda: len(broker.ended) == 1, "the question is answered")
            transaction.decide(TransactionState.ROLLBACK)
        await eventually(lambda: len(broker.ended) == 2, "the end is told")
        ask(broker, transaction.transaction_id)
        await eventually(lambda: len(broker.ended) == 3, "the question is answered again")
        assert [end.commit_or_rollback for end in broker.ended] == [UNKNOWN, ROLLBACK, ROLLBACK]
        assert [end.from_transaction_check for end in broker.ended] == [True, False, True]
    assert checks.asked == []


async def test_names_come_without_their_namespace_to_the_check() -> None:
    checks = Checks()
    async with running_cluster() as cluster:
        cluster.set_route("ns%orders")
        async with producer_of(cluster, checks, namespace="ns"):
            (broker,) = cluster.brokers
            ask(broker, "EARLIER", group=f"ns%{GROUP}", topic="ns%orders")
            await eventually(lambda: len(broker.ended) == 1, "the question is answered")
            assert (broker.ended[0].producer_group, broker.ended[0].topic) == (f"ns%{GROUP}", "ns%orders")
    assert checks.asked[0].topic == "orders"


async def test_a_question_for_another_group_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with running_cluster() as cluster, producer_of(cluster):
        ask(cluster.brokers[0], "EARLIER", group="strangers")
        await eventually(lambda: "'strangers', which is not here" in caplog.text, "it is logged")


async def test_a_lost_end_is_logged_and_left_to_the_check(caplog: pytest.LogCaptureFixture) -> None:
    async with running_cluster() as cluster:
        producer = producer_of(cluster)
        async with producer, producer.transaction(Message(TOPIC, b"paid")) as transaction:
            await producer.stop()
        assert f"the end of transaction {transaction.transaction_id} was not told" in caplog.text


async def test_a_cancelled_local_transaction_is_left_to_the_check() -> None:
    class Slow(Checks):
        began = asyncio.Event()

        async def execute(self, transaction: OpenTransaction, arg: object) -> TransactionState:
            self.began.set()
            await asyncio.Event().wait()
            return TransactionState.COMMIT

        def check(self, message: StoredMessage) -> TransactionState:
            return self(message)

    listener = Slow(TransactionState.ROLLBACK)
    async with (
        running_cluster() as cluster,
        TransactionProducer(GROUP, listener=listener, namesrv=cluster.namesrv, topics=[TOPIC]) as producer,
    ):
        (broker,) = cluster.brokers
        task = asyncio.create_task(producer.send_in_transaction(Message(TOPIC, b"paid")))
        await listener.began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ask(broker, broker.received[0].properties["UNIQ_KEY"])
        await eventually(lambda: len(broker.ended) == 1, "the question is answered")
        assert broker.ended[0].commit_or_rollback == ROLLBACK
    assert len(listener.asked) == 1


async def test_a_producer_that_is_not_running_begins_nothing() -> None:
    producer = TransactionProducer(GROUP, check=Checks(), namesrv="127.0.0.1:1")
    with pytest.raises(StateError, match="not started"):
        async with producer.transaction(Message(TOPIC, b"paid")):
            pytest.fail("the block must not run")
    await producer.stop()


async def test_the_blocking_producer_does_the_same(caplog: pytest.LogCaptureFixture) -> None:
    """P6: and the local transaction runs on the caller's own thread."""
    caplog.set_level(logging.ERROR)
    listener = Listener(TransactionState.COMMIT)
    async with running_cluster() as cluster:

        def use() -> None:
            with blocking_transactions.TransactionProducer(
                GROUP, listener=listener, namesrv=cluster.namesrv
            ) as producer:
                with producer.transaction(Message(TOPIC, b"one")) as transaction:
                    assert transaction.transaction_id == transaction.receipt.msg_id
                with (
                    pytest.raises(ValueError, match="no money"),
                    producer.transaction(Message(TOPIC, b"two")),
                ):
                    raise ValueError("no money")
                with producer.transaction(Message(TOPIC, b"three")) as transaction:
                    transaction.decide(TransactionState.UNKNOWN)
                assert producer.send_in_transaction(Message(TOPIC, b"four"), "arg").state == "COMMIT_MESSAGE"
                listener.outcome = ValueError("database away")
                assert producer.send_in_transaction(Message(TOPIC, b"five")).state == "UNKNOW"

        await asyncio.to_thread(use)
        (broker,) = cluster.brokers
        await eventually(lambda: len(broker.ended) == 5, "the broker is told of all ends")
        assert [end.commit_or_rollback for end in broker.ended] == [
            COMMIT,
            ROLLBACK,
            UNKNOWN,
            COMMIT,
            UNKNOWN,
        ]
    assert [arg for _, arg in listener.executed] == ["arg", None]
