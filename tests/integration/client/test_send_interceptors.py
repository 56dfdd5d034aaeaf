"""Interceptors of a producer see and change what it sends."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import msgspec
import pytest

from cometmq.client.blocking import producer as blocking_producer
from cometmq.client.producer.interceptor import SendInterceptor
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.sender import SendReceipt
from cometmq.client.producer.transactions import TransactionProducer, TransactionState
from cometmq.model.errors import ClientError, MessageError, PartialBatchError, SendError, SettingsError
from cometmq.model.message import Message
from tests.integration.client.client_kit import SILENT, TOPIC, FakeCluster, running_cluster
from tests.waiting import eventually

CALLER: ContextVar[str] = ContextVar("caller", default="nobody")


class Stamp(SendInterceptor):
    """Writes its name and the caller into every message, and notes what it saw."""

    def __init__(self, name: str, log: list[tuple[str, str, object]]) -> None:
        self.name = name
        self.log = log

    def before_send(self, message: Message) -> Message | None:
        if message.body == b"refused":
            raise MessageError(f"{self.name} refuses it")
        stamped = msgspec.structs.replace(message, properties={**message.properties, self.name: CALLER.get()})
        self.log.append((self.name, "before", stamped))
        return stamped

    def after_send(self, message: Message, receipt: SendReceipt | None, error: BaseException | None) -> None:
        self.log.append((self.name, "after", message))
        self.log.append((self.name, "outcome", receipt if error is None else error))


class Quiet(SendInterceptor):
    """Changes nothing, and fails at the end."""

    def after_send(self, message: Message, receipt: SendReceipt | None, error: BaseException | None) -> None:
        raise ZeroDivisionError


def outcomes(log: list[tuple[str, str, object]]) -> list[object]:
    return [value for _, what, value in log if what == "outcome"]


def producer_of(cluster: FakeCluster, *interceptors: SendInterceptor) -> Producer:
    return Producer(
        "order-service",
        namesrv=cluster.namesrv,
        interceptors=interceptors,
        retry_times=0,
        max_message_size=100,
    )


async def test_interceptors_change_a_message_in_order_and_hear_of_it_in_reverse(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log: list[tuple[str, str, object]] = []
    async with running_cluster() as cluster:
        async with producer_of(cluster, Stamp("first", log), Quiet(), Stamp("second", log)) as producer:
            receipt = await producer.send(Message(TOPIC, b"x"))
        (received,) = cluster.received
    assert received.properties["first"] == received.properties["second"] == "nobody"
    assert [(name, what) for name, what, _ in log] == [
        ("first", "before"),
        ("second", "before"),
        ("second", "after"),
        ("second", "outcome"),
        ("first", "after"),
        ("first", "outcome"),
    ]
    assert log[2][2] is log[1][2]  # each hears of the message that it passed on
    assert log[4][2] is log[0][2]
    assert outcomes(log) == [receipt, receipt]
    assert "after_send of Quiet failed" in caplog.text


async def test_an_interceptor_that_raises_refuses_the_message() -> None:
    log: list[tuple[str, str, object]] = []

    class Refuses(SendInterceptor):
        def before_send(self, message: Message) -> Message | None:
            raise MessageError("not this one")

    class Wrong(SendInterceptor):
        def before_send(self, message: Message) -> Message | None:
            return b"x"  # type: ignore[return-value]

    async with running_cluster() as cluster:
        async with producer_of(cluster, Stamp("first", log), Refuses()) as producer:
            with pytest.raises(MessageError, match="not this one") as caught:
                await producer.send(Message(TOPIC, b"x"))
        async with producer_of(cluster, Wrong()) as producer:
            with pytest.raises(ClientError, match="before_send of Wrong returned bytes; return a Message"):
                await producer.send_oneway(Message(TOPIC, b"x"))
        assert not cluster.received
    assert outcomes(log) == [caught.value]


def test_what_cannot_be_an_interceptor_is_refused_when_the_producer_is_made() -> None:
    class Asynchronous(SendInterceptor):
        async def before_send(self, message: Message) -> None:  # type: ignore[override]
            pass

    for wrong, why in (
        (Quiet(), r"interceptors is a list; write interceptors=\[Quiet"),
        ([object()], "interceptor object has no method before_send; derive from SendInterceptor"),
        ([Asynchronous()], "needs a plain, not a coroutine, method before_send"),
    ):
        with pytest.raises(SettingsError, match=why):
            Producer("g", namesrv="127.0.0.1:1", interceptors=wrong)  # type: ignore[arg-type]


async def test_interceptors_hear_of_failures_and_cancelled_sends() -> None:
    log: list[tuple[str, str, object]] = []
    async with running_cluster() as cluster, producer_of(cluster, Stamp("it", log)) as producer:
        broker = cluster.brokers[0]
        broker.reactions.append(13)
        with pytest.raises(SendError) as caught:
            await producer.send(Message(TOPIC, b"x"))
        with pytest.raises(MessageError):
            await producer.send(Message(TOPIC, b"x" * 101))
        broker.reactions.append(SILENT)
        sending = producer.send_async(Message(TOPIC, b"x"))
        await eventually(lambda: broker.held, "the message arrived")
        sending.cancel()
        await asyncio.wait([sending])
    assert outcomes(log)[0] is caught.value
    assert [type(outcome) for outcome in outcomes(log)[1:]] == [MessageError, asyncio.CancelledError]


async def test_every_message_of_a_batch_is_intercepted() -> None:
    log: list[tuple[str, str, object]] = []
    async with running_cluster() as cluster, producer_of(cluster, Stamp("it", log)) as producer:
        receipts = await producer.send_batch([Message(TOPIC, b"x"), Message(TOPIC, b"y")])
        assert outcomes(log) == receipts
        log.clear()
        cluster.brokers[0].reactions.extend([0, 13])
        with pytest.raises(PartialBatchError) as caught:
            await producer.send_batch([Message(TOPIC, b"x" * 40), Message(TOPIC, b"y" * 40)])
        assert outcomes(log) == [*caught.value.receipts, caught.value]
        log.clear()
        with pytest.raises(MessageError, match="it refuses it") as refused:
            await producer.send_batch([Message(TOPIC, b"x"), Message(TOPIC, b"refused")])
        assert outcomes(log) == [refused.value]


async def test_one_way_sends_have_neither_receipt_nor_error() -> None:
    log: list[tuple[str, str, object]] = []
    async with running_cluster() as cluster, producer_of(cluster, Stamp("it", log)) as producer:
        await producer.send_oneway(Message(TOPIC, b"x"))
        await eventually(lambda: cluster.received, "the message arrives")
        assert "it" in cluster.received[0].properties
    assert outcomes(log) == [None]


async def test_half_messages_are_intercepted() -> None:
    log: list[tuple[str, str, object]] = []
    async with running_cluster() as cluster:
        producer = TransactionProducer(
            "pay",
            namesrv=cluster.namesrv,
            check=lambda message: TransactionState.COMMIT,
            interceptors=[Stamp("it", log)],
        )
        async with producer, producer.transaction(Message(TOPIC, b"x")) as transaction:
            assert outcomes(log) == [transaction.receipt]


async def test_interceptors_of_a_blocking_producer_run_in_the_context_of_the_caller() -> None:
    log: list[tuple[str, str, object]] = []
    async with running_cluster() as cluster:

        def work() -> None:
            CALLER.set("me")
            options = {"namesrv": cluster.namesrv, "interceptors": [Stamp("it", log)]}
            with blocking_producer.Producer("g", **options) as producer:  # type: ignore[arg-type]
                producer.send(Message(TOPIC, b"x"))
                CALLER.set("myself")
                producer.send_async(Message(TOPIC, b"x")).result()

        await asyncio.to_thread(work)
        assert [received.properties["it"] for received in cluster.received] == ["me", "myself"]
