"""Records that writers put together themselves, over the wire (B4, B6, D2)."""

from __future__ import annotations

import asyncio
import threading

import pytest

from cometmq.broker.handlers import own_requests as records
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.exactly_once import OwnRequestCode
from cometmq.wire.headers.pull import PullMessageRequest
from cometmq.wire.record.preencoded import describe_records
from tests.answers import Told, told
from tests.integration.broker.broker_kit import CALL_S, BrokerKit, running_broker, send_header
from tests.unit.store.put.record_bulk_kit import message, request
from tests.waiting import eventually

HELD, SUBSCRIBED = 2, 4
"""Bits of a pull: it may wait, and says itself what it wants."""
MESSAGES = [message(number) for number in range(50)]


async def send(
    kit: BrokerKit,
    body: bytes,
    count: int = len(MESSAGES),
    *,
    topic: str = "orders",
    queue_id: int = 0,
    keyed: bool = True,
) -> Told:
    header = send_header(topic, {}, queue_id=queue_id)
    header.properties = describe_records(count, keyed=keyed)
    answer = await kit.client.call(
        kit.embedded.address, OwnRequestCode.SEND_RECORDS, header, body=body, timeout_s=CALL_S
    )
    return told(answer)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_records_are_stored_as_messages(flush: str) -> None:
    """B4, B10: they are read, found and counted like any others, and are safe when that is said."""
    async with running_broker(settings={"flushDiskType": flush}) as kit:
        await kit.embedded.create_topic("orders", queues=2)
        for first in (0, 50):
            answer = await send(kit, request(MESSAGES))
            assert (answer.code, answer.fields["queueOffset"]) == (0, str(first))
        stored = kit.stored("orders")
        assert [bytes(record.body) for record in stored] == 2 * [body for body, _ in MESSAGES]
        assert [record.queue_offset for record in stored] == list(range(100))
        assert [bytes(record.properties_block) for record in stored[:50]] == [block for _, block in MESSAGES]
        store = kit.broker.context.store
        if flush == "SYNC_FLUSH":
            assert store.log.flushed_offset > stored[-1].physical_offset
        found = store.index.find("orders", f"{7:016X}", 9, 0, 2**62)
        assert found.physical_offsets == [stored[57].physical_offset, stored[7].physical_offset]
        assert kit.broker.context.traffic.put_messages == 100


async def test_the_first_records_wait_until_they_can_be_put(monkeypatch: pytest.MonkeyPatch) -> None:
    """B4: and are put in the order in which they came."""
    loaded = threading.Event()
    monkeypatch.setattr(records, "arrays_are_loaded", loaded.is_set)
    monkeypatch.setattr(records, "load_arrays", loaded.wait)
    async with running_broker() as kit:
        await kit.embedded.create_topic("orders", queues=1)
        sends = [asyncio.ensure_future(send(kit, request([each]), 1)) for each in MESSAGES[:5]]
        metrics = kit.broker.server.metrics
        await eventually(
            lambda: metrics.of(OwnRequestCode.SEND_RECORDS).requests == 5, "all of them are there"
        )
        assert kit.stored("orders") == []
        loaded.set()
        answers = await asyncio.gather(*sends)
        assert [answer.fields["queueOffset"] for answer in answers] == ["0", "1", "2", "3", "4"]
        assert [bytes(record.body) for record in kit.stored("orders")] == [body for body, _ in MESSAGES[:5]]


async def test_a_broker_whose_numpy_is_broken_does_not_know_the_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """B4: writers send batches then."""

    def fail() -> bool:
        raise ImportError("no such symbol")

    monkeypatch.setattr(records, "arrays_are_loaded", lambda: False)
    monkeypatch.setattr(records, "load_arrays", fail)
    async with running_broker() as kit:
        await kit.embedded.create_topic("orders", queues=1)
        answer = await send(kit, request(MESSAGES))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "NumPy is installed and cannot be loaded: no such symbol" in caplog.text
        assert kit.stored("orders") == []


async def test_whoever_waits_for_messages_gets_them() -> None:
    """B3, B8: by the tags that it wants."""
    async with running_broker() as kit:
        await kit.embedded.create_topic("orders", queues=1)
        held_pulls = kit.broker.context.held_pulls
        pull = PullMessageRequest(
            consumer_group="readers",
            topic="orders",
            queue_id=0,
            queue_offset=0,
            max_msg_nums=32,
            sys_flag=HELD | SUBSCRIBED,
            commit_offset=0,
            suspend_timeout_millis=15_000,
            subscription="tag-1",
            sub_version=0,
        )
        call = kit.client.call(kit.embedded.address, RequestCode.PULL_MESSAGE, pull, timeout_s=CALL_S)
        waiting = asyncio.ensure_future(call)
        await eventually(lambda: held_pulls.count == 1, "the pull is held")
        assert (await send(kit, request([message(0)]), 1)).code == 0  # one with another tag
        assert held_pulls.count == 1
        assert (await send(kit, request(MESSAGES))).code == 0
        answer = await waiting
        assert answer.code == 0
        assert MESSAGES[1][0] in bytes(answer.body)


async def test_what_is_wrong_is_refused_and_changes_nothing() -> None:
    """B4: with a reason; also what does not say how many records it has."""
    async with running_broker() as kit:
        await kit.embedded.create_topic("orders", queues=2)
        body = request(MESSAGES)
        refused = [
            (await send(kit, body, 0), "bytes cannot be 0 records"),
            (await send(kit, body, 49), "the sizes of the records are not those of the request"),
            (await send(kit, body.replace(b"orders", b"ordery")), "record 0 of 50 is not one of this topic"),
            (await send(kit, b""), "0 bytes cannot be 50 records"),
            (await send(kit, body, queue_id=-1), "records have to be for a queue"),
        ]
        for answer, reason in refused:
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL, answer
            assert reason in (answer.remark or "")
        header = send_header("orders", {}, queue_id=0)
        address = kit.embedded.address
        answer = told(
            await kit.client.call(address, OwnRequestCode.SEND_RECORDS, header, body=body, timeout_s=CALL_S)
        )
        assert answer.remark == "the request does not say how many records it has"
        assert (await send(kit, body, queue_id=2)).code == ResponseCode.INVALID_PARAMETER
        retried = await send(kit, body, topic="%RETRY%group")
        assert retried.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert kit.stored("orders") == []
        assert kit.broker.context.store.log.max_offset == 0


async def test_a_broker_that_adds_something_to_every_record_does_not_know_the_request() -> None:
    """B4: writers send batches then."""
    async with running_broker(settings={"enabledAppendPropCRC": "true"}) as kit:
        await kit.embedded.create_topic("orders", queues=1)
        answer = await send(kit, request(MESSAGES))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_a_broker_that_is_busy_refuses_records() -> None:
    """B5"""
    async with running_broker() as kit:
        await kit.embedded.create_topic("orders", queues=1)
        kit.broker.context.sender.pressure.refusal = (
            "[REJECTREQUEST]system busy, start flow control for a while"
        )
        assert (await send(kit, request(MESSAGES))).code == ResponseCode.SYSTEM_BUSY
        assert kit.stored("orders") == []
