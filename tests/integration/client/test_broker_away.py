"""Sends while the broker restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cometmq.client.producer.producer import Producer
from cometmq.model.errors import SendError
from cometmq.model.message import Message
from cometmq.testing import EmbeddedBroker
from tests.integration.namesrv.namesrv_kit import running_namesrv


@pytest.mark.parametrize("chosen", [False, True], ids=["any queue", "chosen queue"])
async def test_a_send_waits_for_a_broker_that_restarts(tmp_path: Path, chosen: bool) -> None:
    """P3: within its time-out; nothing is sent twice."""
    async with running_namesrv(tmp_path / "namesrv") as server:

        def broker(**settings: str) -> EmbeddedBroker:
            return EmbeddedBroker(tmp_path / "store", namesrv=server.address, settings=settings)

        async with Producer("g", namesrv=server.address) as producer:
            async with broker() as first:
                receipt = await producer.send(Message("orders", b"1"))
                port, queue = first.broker.port, receipt.queue if chosen else None
            sending = asyncio.create_task(producer.send(Message("orders", b"2"), queue=queue, timeout_s=30.0))
            done, _ = await asyncio.wait([sending], timeout=1.5)
            assert not done, "three tries in no time would be over"
            async with broker(listenPort=str(port)) as again:
                stored = await sending
                put = again.broker.context.traffic.put_messages
            assert stored.queue_offset == (1 if stored.queue == receipt.queue else 0)
            assert put == 1, "once"


async def test_the_time_out_ends_it_and_the_error_says_how_often_it_was_tried(tmp_path: Path) -> None:
    """P3."""
    async with (
        running_namesrv(tmp_path / "namesrv") as server,
        Producer("g", namesrv=server.address) as producer,
    ):
        async with EmbeddedBroker(tmp_path / "store", namesrv=server.address):
            await producer.send(Message("orders", b"1"))
        begun = asyncio.get_running_loop().time()
        with pytest.raises(SendError, match=r"was not sent in \d+ tries") as caught:
            await producer.send(Message("orders", b"2"), timeout_s=1.0)
        assert 0.8 < asyncio.get_running_loop().time() - begun < 5
        assert not caught.value.maybe_applied
        assert caught.value.retriable
        assert 3 < len(caught.value.attempts) <= 16
