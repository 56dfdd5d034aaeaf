"""Messages found by key, by unique id, and by their offset in the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cometmq.testing.clock import VirtualClock
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.pull import QueryMessageRequest, ViewMessageRequest
from cometmq.wire.record.ids import decode_offset_id
from tests.answers import Told
from tests.integration.client.consumer_kit import TOPIC, Visitor, running_broker

FOREVER = 2**63 - 1


async def query(visitor: Visitor, key: str, **fields: Any) -> Told:
    header = QueryMessageRequest(
        **{
            "topic": TOPIC,
            "key": key,
            "max_num": 32,
            "begin_timestamp": 0,
            "end_timestamp": FOREVER,
            **fields,
        }
    )
    return await visitor.ask(RequestCode.QUERY_MESSAGE, header)


async def test_messages_are_found_by_key_and_by_time(tmp_path: Path) -> None:
    """B10."""
    clock = VirtualClock()
    start = clock.now_ms()
    async with running_broker(tmp_path, clock=clock) as visit:
        visitor = visit.visitor()
        await visitor.send(b"first", KEYS="42 blue")
        clock.advance(10_000)
        await visitor.send(b"second", queue_id=1, KEYS="42")
        await visitor.send(b"other", KEYS="43")
        found = await query(visitor, "42")
        assert (found.code, found.bodies) == (0, [b"first", b"second"])
        assert found.fields["indexLastUpdateTimestamp"] == str(clock.now_ms())
        assert (await query(visitor, "blue")).bodies == [b"first"]
        assert (await query(visitor, "42", begin_timestamp=start + 5_000)).bodies == [b"second"]
        assert (await query(visitor, "42", end_timestamp=start + 5_000)).bodies == [b"first"]
        assert (await query(visitor, "42", max_num=1)).bodies == [b"second"]


async def test_a_message_is_found_by_its_unique_id(tmp_path: Path) -> None:
    """B10."""
    async with running_broker(tmp_path) as visit:
        visitor = visit.visitor()
        sent = await visitor.send(b"order", UNIQ_KEY="7F0000013F42A60BABA64AF866D70000")
        assert sent.fields["transactionId"] == "7F0000013F42A60BABA64AF866D70000"
        found = await query(visitor, "7F0000013F42A60BABA64AF866D70000", unique_key_query=True, max_num=1)
        assert found.bodies == [b"order"]


async def test_a_key_that_no_message_has_is_not_found(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        answer = await query(visit.visitor(), "nothing")
        assert (answer.code, answer.remark) == (22, "can not find message, maybe time range not correct")


@pytest.mark.parametrize("size", [1, 100_000])
async def test_a_message_is_found_by_its_place_in_the_log(tmp_path: Path, size: int) -> None:
    """B10."""
    async with running_broker(tmp_path) as visit:
        visitor = visit.visitor()
        await visitor.send(b"before")
        sent = await visitor.send(b"x" * size)
        offset_id = sent.fields["msgId"]
        assert offset_id is not None
        offset = decode_offset_id(offset_id).commit_log_offset
        found = await visitor.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequest(offset=offset))
        assert (found.code, found.bodies) == (0, [b"x" * size])


@pytest.mark.parametrize("offset", [-1, 1, 2**40])
async def test_a_place_without_a_message_is_answered_so(tmp_path: Path, offset: int) -> None:
    async with running_broker(tmp_path) as visit:
        visitor = visit.visitor()
        await visitor.send(b"order")
        answer = await visitor.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequest(offset=offset))
        assert (answer.code, answer.remark) == (1, f"can not find message by the offset, {offset}")
