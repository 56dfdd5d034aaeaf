"""A producer sends: whole calls, batches, one-way, callbacks, chosen queues and keys."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pytest

from cometmq.client.producer.producer import Producer
from cometmq.client.producer.sender import SendReceipt, SendStatus
from cometmq.model.errors import (
    CallTimeoutError,
    CometError,
    FlushError,
    MessageError,
    PartialBatchError,
    RouteNotFoundError,
    SendError,
    TooManyRequestsError,
)
from cometmq.model.message import Message
from cometmq.model.queue import MessageQueue
from cometmq.model.sysflag import CompressionType, compression_type, is_compressed
from cometmq.wire.codes import RequestCode
from cometmq.wire.java_hash import java_hash
from cometmq.wire.record.batch import decode_batch
from cometmq.wire.record.compression import decompress
from tests.integration.client.client_kit import SILENT, TOPIC, FakeCluster, queue, running_cluster
from tests.waiting import eventually


def producer_of(cluster: FakeCluster, **options: object) -> Producer:
    return Producer("order-service", namesrv=cluster.namesrv, **options)  # type: ignore[arg-type]


async def test_a_batch_of_very_many_messages_becomes_several_requests() -> None:
    """P4: the answer to each names all its messages, and has to fit into a header that everybody reads."""
    messages = [Message(TOPIC, b"%d" % number) for number in range(10_000)]
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        receipts = await producer.send_batch(messages, timeout_s=60.0)
        sizes = [len(decode_batch(received.body)) for received in cluster.received]
    assert len(receipts) == len(messages)
    assert len({receipt.msg_id for receipt in receipts}) == len(messages)
    assert sizes == [4_000, 4_000, 2_000]


async def test_a_send_returns_where_the_message_was_stored() -> None:
    """P4."""
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        message = Message(TOPIC, b"paid", tags="eu", keys=["7", "8"], properties={"shop": "north"}, flag=3)
        receipt = await producer.send(message)
        (received,) = cluster.received
    assert receipt.status is SendStatus.SEND_OK
    assert receipt.queue == queue(received.header.queue_id)
    assert receipt.queue_offset == 1
    assert receipt.msg_id == received.properties["UNIQ_KEY"]
    assert len(receipt.msg_id) == 32
    assert receipt.region_id == "DefaultRegion"
    assert receipt.trace_on
    assert received.code == RequestCode.SEND_MESSAGE_V2
    assert (received.header.producer_group, received.header.topic) == ("order-service", TOPIC)
    assert (received.header.default_topic, received.header.default_topic_queue_nums) == ("TBW102", 4)
    assert (received.header.flag, received.header.sys_flag, received.header.batch) == (3, 0, False)
    assert received.header.broker_name == "broker-a"
    assert received.body == b"paid"
    assert received.properties | {"UNIQ_KEY": ""} == {
        "shop": "north",
        "KEYS": "7 8",
        "TAGS": "eu",
        "WAIT": "true",
        "UNIQ_KEY": "",
    }


async def test_queues_take_turns() -> None:
    """P5."""
    async with running_cluster(brokers=2) as cluster, producer_of(cluster) as producer:
        used = [(await producer.send(Message(TOPIC, b"x"))).queue for _ in range(16)]
        assert sorted(used[:8]) == sorted(await producer.queues(TOPIC))
    assert used[8:] == used[:8]


async def test_every_message_has_an_id_of_its_own() -> None:
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        sends = [producer.send(Message(TOPIC, b"x")) for _ in range(500)]
        receipts = await asyncio.gather(*sends)
    assert len({receipt.msg_id for receipt in receipts}) == 500


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
async def test_a_message_that_is_stored_less_safely_has_a_status_that_says_so(
    code: int, status: SendStatus
) -> None:
    async with running_cluster(brokers=2) as cluster, producer_of(cluster) as producer:
        for broker in cluster.brokers:
            broker.always = code
        receipt = await producer.send(Message(TOPIC, b"x"))
        assert receipt.status is status
        assert len(cluster.received) == 1


async def test_a_less_safe_store_is_tried_elsewhere_if_asked_for() -> None:
    async with (
        running_cluster(brokers=2) as cluster,
        producer_of(cluster, retry_when_not_stored_ok=True) as producer,
    ):
        for broker in cluster.brokers:
            broker.always = 12
        receipt = await producer.send(Message(TOPIC, b"x"))
        assert receipt.status is SendStatus.FLUSH_SLAVE_TIMEOUT
        assert len(cluster.received) == 3


async def test_a_message_goes_to_the_queue_that_was_named() -> None:
    """P4."""
    async with running_cluster(brokers=2) as cluster, producer_of(cluster) as producer:
        wanted = queue(2, "broker-b")
        assert (await producer.send(Message(TOPIC, b"x"), queue=wanted)).queue == wanted
        with pytest.raises(MessageError, match="does not belong to topic orders"):
            await producer.send(Message(TOPIC, b"x"), queue=queue(2, topic="other"))


async def test_a_selector_chooses_among_the_queues() -> None:
    """P4."""

    def last(queues: Sequence[MessageQueue], message: object, arg: object) -> MessageQueue:
        assert isinstance(message, Message)
        assert arg == "any"
        return queues[-1]

    async with running_cluster(brokers=2) as cluster, producer_of(cluster) as producer:
        receipt = await producer.send(Message(TOPIC, b"x"), selector=last, selector_arg="any")
        assert receipt.queue == queue(3, "broker-b")


async def test_messages_with_one_sharding_key_go_to_one_queue_the_one_that_java_takes() -> None:
    """P4, ordered by key."""
    async with running_cluster(brokers=2) as cluster, producer_of(cluster) as producer:
        queues = await producer.queues(TOPIC)
        for key in ("order-1", "order-2", "Bestellung-\u00e4", "x" * 40):
            sent = [await producer.send(Message(TOPIC, b"x", sharding_key=key)) for _ in range(3)]
            assert {receipt.queue for receipt in sent} == {queues[abs(java_hash(key)) % 8]}


async def test_a_send_to_a_chosen_queue_is_not_tried_elsewhere() -> None:
    """P5: another queue would break the order."""
    async with running_cluster(brokers=2) as cluster, producer_of(cluster) as producer:
        cluster.brokers[0].always = 2
        with pytest.raises(SendError, match="not today"):
            await producer.send(Message(TOPIC, b"x"), queue=queue(0, "broker-a"))
        assert len(cluster.received) == 1


async def test_a_one_way_send_asks_for_no_answer() -> None:
    """P4."""
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        await producer.send_oneway(Message(TOPIC, b"fire"))
        await producer.send_oneway(Message(TOPIC, b"and forget"), queue=queue(1))
        await eventually(lambda: len(cluster.received) == 2, "both messages arrive")
        assert [received.oneway for received in cluster.received] == [True, True]
        assert cluster.received[1].header.queue_id == 1


async def test_a_callback_gets_the_receipt_or_the_error() -> None:
    """P4, asynchronously with callback and awaitable."""
    outcomes: list[SendReceipt | CometError] = []
    async with running_cluster() as cluster, producer_of(cluster, retry_times=0) as producer:
        receipt = await producer.send_async(Message(TOPIC, b"x"), outcomes.append)
        cluster.brokers[0].always = 13
        failing = producer.send_async(Message(TOPIC, b"x"), outcomes.append)
        with pytest.raises(SendError):
            await failing
        await eventually(lambda: len(outcomes) == 2, "both callbacks have run")
    assert outcomes[0] == receipt
    assert isinstance(outcomes[1], SendError)
    assert outcomes[1].code == 13


async def test_a_callback_that_fails_does_not_hurt_the_producer(caplog: pytest.LogCaptureFixture) -> None:
    def broken(outcome: object) -> None:
        raise ZeroDivisionError

    async with running_cluster() as cluster, producer_of(cluster) as producer:
        await producer.send_async(Message(TOPIC, b"x"), broken)
        await eventually(lambda: "callback of a send failed" in caplog.text, "the failure is logged")
        await producer.send(Message(TOPIC, b"x"))


async def test_too_many_sends_beside_are_refused() -> None:
    async with running_cluster() as cluster, producer_of(cluster, max_in_flight_messages=3) as producer:
        broker = cluster.brokers[0]
        broker.always = SILENT
        tasks = [producer.send_async(Message(TOPIC, b"x")) for _ in range(3)]
        with pytest.raises(TooManyRequestsError, match="3 messages are under way"):
            producer.send_async(Message(TOPIC, b"x"))
        await eventually(lambda: len(broker.held) == 3, "all three arrived")
        broker.answer_held()
        await asyncio.gather(*tasks)


async def test_a_flush_waits_for_what_was_handed_over_before_and_for_nothing_else() -> None:
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        broker = cluster.brokers[0]
        broker.always = SILENT
        outcomes: list[SendReceipt | CometError] = []
        sends = [producer.send_async(Message(TOPIC, b"x"), outcomes.append) for _ in range(3)]
        sends.append(asyncio.create_task(producer.send(Message(TOPIC, b"x"))))
        flush = asyncio.create_task(producer.flush())
        await eventually(lambda: len(broker.held) == 4, "all four arrived")
        held, broker.held = broker.held, []
        later = producer.send_async(Message(TOPIC, b"later"))
        await eventually(lambda: len(broker.held) == 1, "the later one arrived")
        assert not flush.done()
        broker.held, held = held, broker.held
        broker.answer_held()
        await flush
        assert all(task.done() for task in sends)
        assert len(outcomes) == 3
        assert not later.done()
        with pytest.raises(CallTimeoutError, match="1 messages are still in flight after 0"):
            await producer.flush(timeout_s=0.05)
        broker.held = held
        broker.answer_held()
        await producer.flush(timeout_s=30)
        assert later.done()


async def test_a_flush_raises_the_failures_that_no_callback_got_once() -> None:
    outcomes: list[SendReceipt | CometError] = []
    async with running_cluster() as cluster, producer_of(cluster, retry_times=0) as producer:
        cluster.brokers[0].reactions.extend([13, 0, 13, 13])
        for callback in (None, None, None, outcomes.append):
            producer.send_async(Message(TOPIC, b"x"), callback)
        with pytest.raises(FlushError, match="2 of the messages that were sent in the background") as caught:
            await producer.flush()
        await producer.flush()
    assert caught.value.count == 2
    assert [error.code for error in caught.value.errors] == [13, 13]
    assert not caught.value.maybe_applied
    assert [type(outcome) for outcome in outcomes] == [SendError]


async def test_an_error_of_the_application_in_a_background_send_is_told_too() -> None:
    def broken(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
        raise ZeroDivisionError("no queue")

    outcomes: list[SendReceipt | CometError] = []
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        producer.send_async(Message(TOPIC, b"x"), outcomes.append, selector=broken)
        producer.send_async(Message(TOPIC, b"x"), selector=broken)
        with pytest.raises(FlushError, match=r"1 of the .*not sent: ZeroDivisionError: no queue"):
            await producer.flush()
    (outcome,) = outcomes
    assert isinstance(outcome, SendError)
    assert isinstance(outcome.__cause__, ZeroDivisionError)


async def test_sends_wait_for_room_when_enough_is_under_way() -> None:
    """Back-pressure: no more than the limit is ever at the broker."""
    async with running_cluster() as cluster, producer_of(cluster, max_in_flight_messages=4) as producer:
        broker = cluster.brokers[0]
        broker.always = SILENT
        tasks = [asyncio.create_task(producer.send(Message(TOPIC, b"x"))) for _ in range(10)]
        for done in (4, 8, 10):
            await eventually(lambda done=done: len(broker.received) == done, f"{done} arrived")  # type: ignore[misc]
            assert len(broker.held) <= 4
            broker.answer_held()
        await asyncio.gather(*tasks)


async def test_bytes_under_way_are_limited_too() -> None:
    async with running_cluster() as cluster, producer_of(cluster, max_in_flight_bytes=2500) as producer:
        broker = cluster.brokers[0]
        broker.always = SILENT
        tasks = [asyncio.create_task(producer.send(Message(TOPIC, bytes(1000)))) for _ in range(3)]
        await eventually(lambda: len(broker.received) == 2, "two messages arrived")
        broker.answer_held()
        await eventually(lambda: len(broker.received) == 3, "the third one follows")
        broker.answer_held()
        await asyncio.gather(*tasks)


async def test_a_batch_is_one_request_and_gives_a_receipt_for_each_message() -> None:
    """P4."""
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        receipts = await producer.send_batch([Message(TOPIC, b"%d" % n, tags=f"t{n}") for n in range(5)])
        (received,) = cluster.received
    items = decode_batch(received.body)
    assert received.code == RequestCode.SEND_BATCH_MESSAGE
    assert received.header.batch is True
    assert [bytes(item.body) for item in items] == [b"0", b"1", b"2", b"3", b"4"]
    assert [item.properties()["TAGS"] for item in items] == ["t0", "t1", "t2", "t3", "t4"]
    assert [receipt.msg_id for receipt in receipts] == [item.properties()["UNIQ_KEY"] for item in items]
    assert [receipt.queue_offset for receipt in receipts] == [1, 2, 3, 4, 5]
    assert len({receipt.offset_msg_id for receipt in receipts}) == 5


async def test_a_large_batch_is_split_below_the_size_limit() -> None:
    """P4: no request is larger than a message may be."""
    async with running_cluster() as cluster, producer_of(cluster, max_message_size=10_000) as producer:
        receipts = await producer.send_batch([Message(TOPIC, bytes(3000)) for _ in range(10)])
        sizes = [len(received.body) for received in cluster.received]
    assert len(receipts) == 10
    assert len(sizes) == 4
    assert max(sizes) <= 10_000


async def test_a_batch_that_fails_half_way_says_what_was_stored() -> None:
    async with (
        running_cluster() as cluster,
        producer_of(cluster, max_message_size=4000, retry_times=0) as producer,
    ):
        cluster.brokers[0].reactions.extend([0, 13])
        with pytest.raises(PartialBatchError, match="1 of 3 messages are stored") as caught:
            await producer.send_batch([Message(TOPIC, bytes(3000)) for _ in range(3)])
    (stored,) = caught.value.receipts
    assert stored.status is SendStatus.SEND_OK
    assert caught.value.code == 13


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "at least one message"),
        ([Message("a", b"x"), Message("b", b"x")], "one topic"),
        ([Message("a", b"x"), Message("a", b"x", wait_store_ok=False)], "wait_store_ok"),
        ([Message("a", b"x", delay_level=3)], "cannot be delayed"),
        ([Message("a", b"x", delay_ms=1000)], "cannot be delayed"),
        ([Message("a", b"x", sharding_key="k"), Message("a", b"x")], "sharding_key"),
        ([Message("%RETRY%g", b"x")], "retry topic"),
    ],
)
async def test_messages_that_cannot_share_a_batch_are_refused(messages: list[Message], reason: str) -> None:
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        with pytest.raises(MessageError, match=reason):
            await producer.send_batch(messages)
        assert not cluster.received


@pytest.mark.parametrize("kind", ["ZLIB", "LZ4", "ZSTD"])
@pytest.mark.parametrize("size", [4096, 300_000])
async def test_a_large_body_is_compressed(kind: str, size: int) -> None:
    """P6: at once when it is small, on a worker thread when it is large."""
    body = b"".join(b"%d" % number for number in itertools.islice(itertools.count(), size))[:size]
    async with running_cluster() as cluster, producer_of(cluster, compression=kind) as producer:
        await producer.send(Message(TOPIC, body))
        (received,) = cluster.received
    assert is_compressed(received.header.sys_flag)
    assert compression_type(received.header.sys_flag) is CompressionType[kind]
    assert len(received.body) < size
    assert decompress(received.body, CompressionType[kind]) == body


async def test_a_small_body_is_sent_as_it_is() -> None:
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        await producer.send(Message(TOPIC, bytes(4095)))
        (received,) = cluster.received
    assert received.header.sys_flag == 0
    assert received.body == bytes(4095)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message(TOPIC, b""), "needs a body"),
        (Message(TOPIC, bytes(5 << 20)), "over max_message_size"),
        (Message("no blanks", b"x"), "contains something else"),
        (Message("t" * 128, b"x"), "127 are possible"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "the brokers' own"),
        (Message(TOPIC, b"x", properties={"p": "v" * 40_000}), "32767 are possible"),
    ],
)
async def test_a_message_that_no_broker_takes_is_refused_before_it_is_sent(
    message: Message, reason: str
) -> None:
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        with pytest.raises(MessageError, match=reason):
            await producer.send(message)
        assert not cluster.received


async def test_a_new_topic_gets_the_queues_of_the_template_on_its_first_message() -> None:
    """B2, seen from the producer: the smaller of both numbers."""
    async with running_cluster() as cluster, producer_of(cluster, default_topic_queue_nums=3) as producer:
        cluster.set_route("TBW102", queues=8, perm=7)
        receipts = [await producer.send(Message("brand-new", b"x")) for _ in range(3)]
        assert {receipt.queue.queue_id for receipt in receipts} == {0, 1, 2}
        assert cluster.received[0].header.default_topic_queue_nums == 3
        assert [asked for asked in cluster.name_servers[0].asked if asked == "TBW102"] == ["TBW102"]


async def test_a_topic_that_nobody_knows_is_an_error_that_says_what_to_do() -> None:
    """B2: with auto-creation off, the producer gets a clear error."""
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        with pytest.raises(RouteNotFoundError, match="create the topic first") as caught:
            await producer.send(Message("nowhere", b"x"))
    assert caught.value.code == 10005


async def test_a_topic_without_write_permission_is_not_sent_to() -> None:
    async with running_cluster() as cluster, producer_of(cluster) as producer:
        cluster.set_route("read-only", perm=4)
        with pytest.raises(RouteNotFoundError, match="no queue that can be written"):
            await producer.send(Message("read-only", b"x"))


async def test_names_are_wrapped_in_the_namespace_and_unwrapped_again() -> None:
    async with running_cluster() as cluster:
        cluster.set_route("shop%orders")
        async with producer_of(cluster, namespace="shop") as producer:
            receipt = await producer.send(Message(TOPIC, b"x"), queue=queue(1))
            assert [each.topic for each in await producer.queues(TOPIC)] == [TOPIC] * 4
            (received,) = cluster.received
    assert receipt.queue == queue(1)
    assert received.header.topic == "shop%orders"
    assert received.header.producer_group == "shop%order-service"
    assert received.properties["INSTANCE_ID"] == "shop"


async def test_every_request_is_signed_if_there_is_a_key() -> None:
    """B13, the client's side of access control."""
    options = {"access_key": "alice", "secret_key": "s3cret", "security_token": "token"}
    async with running_cluster() as cluster, producer_of(cluster, **options) as producer:
        await producer.send(Message(TOPIC, b"x"))
        fields = cluster.received[0].fields
    assert fields["AccessKey"] == "alice"
    assert fields["SecurityToken"] == "token"
    assert len(fields["Signature"] or "") == 28
