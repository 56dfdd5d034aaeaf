"""Locks of queues over the wire."""

from __future__ import annotations

import json
from pathlib import Path

from cometmq.testing.clock import VirtualClock
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.session import LockBatchMqRequest, UnlockBatchMqRequest
from tests.integration.client.consumer_kit import GROUP, TOPIC, Visitor, running_broker


def body(client_id: str, *queue_ids: int) -> bytes:
    queues = [{"brokerName": "broker-a", "queueId": queue_id, "topic": TOPIC} for queue_id in queue_ids]
    return json.dumps(
        {"clientId": client_id, "consumerGroup": GROUP, "mqSet": queues, "onlyThisBroker": False}
    ).encode()


async def lock(visitor: Visitor, client_id: str, *queue_ids: int) -> list[int]:
    answer = await visitor.ask(
        RequestCode.LOCK_BATCH_MQ, LockBatchMqRequest(), body=body(client_id, *queue_ids)
    )
    assert answer.code == 0
    return [queue["queueId"] for queue in json.loads(answer.body)["lockOKMQSet"]]


async def test_a_queue_belongs_to_one_client_until_it_lets_go_or_falls_silent(tmp_path: Path) -> None:
    """B3."""
    clock = VirtualClock()
    async with running_broker(tmp_path, clock=clock) as visit:
        visitor = visit.visitor()
        assert await lock(visitor, "first", 0, 1) == [0, 1]
        assert await lock(visitor, "second", 0, 1, 2) == [2]
        answer = await visitor.ask(RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqRequest(), body=body("first", 0))
        assert answer.code == 0
        assert await lock(visitor, "second", 0, 1) == [0]
        clock.advance(60_001)
        assert await lock(visitor, "second", 0, 1) == [0, 1]
