"""`cometmq message send --lines`: many sends at a time, receipts in the order of the lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import typer

from cometmq.cli.admin.message_send import send_lines
from cometmq.model.errors import ClientError


async def numbered(count: int) -> AsyncIterator[tuple[int, bytes]]:
    for number in range(1, count + 1):
        yield number, b"%d" % number


async def test_receipts_come_in_the_order_of_the_lines() -> None:
    """Also if the first send is answered last; and no more are under way than allowed."""
    under_way = most = 0
    first = asyncio.Event()

    async def send(body: bytes) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if body == b"1":
            await first.wait()
        elif body == b"4":
            first.set()
        under_way -= 1
        return body

    shown: list[Any] = []
    await send_lines(numbered(9), send, shown.append, 4)
    assert shown == [b"%d" % number for number in range(1, 10)]
    assert most <= 4


async def test_one_at_a_time_keeps_their_order() -> None:
    begun: list[bytes] = []
    ended: list[bytes] = []

    async def send(body: bytes) -> Any:
        assert begun == ended
        begun.append(body)
        await asyncio.sleep(0)
        ended.append(body)

    await send_lines(numbered(5), send, lambda receipt: None, 1)
    assert len(ended) == 5


async def test_after_a_failure_it_is_clear_which_lines_were_sent(capsys: pytest.CaptureFixture[str]) -> None:
    async def send(body: bytes) -> Any:
        if body == b"2":
            raise ClientError("the broker is away")
        return body

    shown: list[Any] = []
    with pytest.raises(typer.Exit) as ended:
        await send_lines(numbered(1000), send, shown.append, 4)
    assert ended.value.exit_code == 1
    assert shown[0] == b"1"
    assert b"2" not in shown
    assert len(shown) < 10, "no further lines are sent"
    assert capsys.readouterr().err == "error: line 2: the broker is away\n"
