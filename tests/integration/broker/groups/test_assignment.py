"""Balancing by the broker, for consumers that pull and for those that pop (B12, C2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cometmq.remoting.client import RemotingClient
from cometmq.wire.bodies.heartbeat import (
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
    encode_heartbeat,
)
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.session import HeartbeatRequest
from cometmq.wire.json import fastjson
from tests.answers import Told
from tests.integration.broker.broker_kit import BrokerKit, running_broker
from tests.integration.broker.pop.pop_kit import GROUP, TOPIC


async def join(kit: BrokerKit, client_id: str, clients: list[RemotingClient]) -> None:
    """Another member of the group."""
    client = RemotingClient()
    clients.append(client)
    consumer = ConsumerData(GROUP, subscription_data_set=(SubscriptionData(TOPIC, "*"),))
    data = HeartbeatData(client_id, consumer_data_set=(consumer,))
    answer = await client.call(
        kit.embedded.address, RequestCode.HEART_BEAT, HeartbeatRequest(), body=encode_heartbeat(data)
    )
    assert answer.code == 0


async def assigned(kit: BrokerKit, client_id: str, **changes: str) -> list[tuple[str, int, str]] | None:
    """Broker, queue and mode of each queue of a client; None if it is to keep what it has."""
    body = {
        "clientId": client_id,
        "consumerGroup": GROUP,
        "messageModel": "CLUSTERING",
        "strategyName": "AVG",
        "topic": TOPIC,
        **changes,
    }
    told = await kit.ok(RequestCode.QUERY_ASSIGNMENT, body=fastjson.dumps(body))
    found = fastjson.loads(told.body).get("messageQueueAssignments")
    if found is None:
        return None
    return sorted(
        (each["messageQueue"]["brokerName"], each["messageQueue"]["queueId"], each["mode"]) for each in found
    )


async def set_mode(kit: BrokerKit, mode: str, share: int = 0, topic: str = TOPIC, group: str = GROUP) -> Told:
    body: dict[str, Any] = {"topic": topic, "consumerGroup": group, "mode": mode, "popShareQueueNum": share}
    return await kit.call(RequestCode.SET_MESSAGE_REQUEST_MODE, body=fastjson.dumps(body))


def queues(*ids: int, mode: str = "PULL") -> list[tuple[str, int, str]]:
    return [("embedded", queue_id, mode) for queue_id in ids]


@pytest.fixture
async def clients() -> Any:
    started: list[RemotingClient] = []
    yield started
    for client in started:
        await client.stop()


async def test_members_that_pull_get_queues_of_their_own(clients: list[RemotingClient]) -> None:
    """C2: by the strategy that they name."""
    async with running_broker() as kit:
        await kit.embedded.create_topic(TOPIC, queues=5)
        for client_id in ("b", "a"):
            await join(kit, client_id, clients)
        assert await assigned(kit, "a") == queues(0, 1, 2)
        assert await assigned(kit, "b") == queues(3, 4)
        assert await assigned(kit, "a", strategyName="AVG_BY_CIRCLE") == queues(0, 2, 4)
        assert await assigned(kit, "stranger") == []
        assert await assigned(kit, "a", messageModel="BROADCASTING") == queues(0, 1, 2, 3, 4)


async def test_what_is_not_known_changes_nothing(clients: list[RemotingClient]) -> None:
    """C2: no topic, no members, no such strategy."""
    async with running_broker() as kit:
        assert await assigned(kit, "a") is None
        await kit.embedded.create_topic(TOPIC, queues=4)
        assert await assigned(kit, "a") is None
        await join(kit, "a", clients)
        assert await assigned(kit, "a", strategyName="MACHINE_ROOM") is None
        assert await assigned(kit, "a", topic="Nowhere") is None
        assert await assigned(kit, "a") == queues(0, 1, 2, 3)


async def test_members_that_pop_share_all_queues(clients: list[RemotingClient]) -> None:
    """B12: or some of them."""
    async with running_broker() as kit:
        await kit.embedded.create_topic(TOPIC, queues=4)
        for client_id in ("a", "b", "c", "d"):
            await join(kit, client_id, clients)
        assert (await set_mode(kit, "POP")).code == 0
        assert await assigned(kit, "b") == queues(-1, mode="POP")
        assert (await set_mode(kit, "POP", share=1)).code == 0
        assert await assigned(kit, "a") == queues(0, 1, mode="POP")
        assert await assigned(kit, "d") == queues(0, 3, mode="POP")
        await join(kit, "e", clients)
        assert await assigned(kit, "e") == queues(0, mode="POP")
        assert (await set_mode(kit, "PULL")).code == 0
        assert await assigned(kit, "b") == queues(1)


async def test_a_broker_may_let_groups_pop_by_default(clients: list[RemotingClient]) -> None:
    """B12: retry topics are pulled all the same."""
    settings = {"defaultMessageRequestMode": "POP"}
    async with running_broker(settings=settings) as kit:
        await kit.embedded.create_topic(TOPIC, queues=4)
        await join(kit, "a", clients)
        assert await assigned(kit, "a") == queues(-1, mode="POP")
        assert await assigned(kit, "a", topic=f"%RETRY%{GROUP}") == queues(0)


async def test_without_balancing_everybody_gets_everything(clients: list[RemotingClient]) -> None:
    """C2."""
    async with running_broker(settings={"serverLoadBalancerEnable": "false"}) as kit:
        await kit.embedded.create_topic(TOPIC, queues=2)
        assert await assigned(kit, "a") == queues(0, 1)


async def test_a_mode_that_cannot_be_is_refused() -> None:
    """B12: with Apache's codes."""
    async with running_broker() as kit:
        await kit.embedded.create_topic(TOPIC, queues=2)
        retry = await set_mode(kit, "POP", topic=f"%RETRY%{GROUP}")
        assert (retry.code, retry.remark) == (16, "retry topic is not allowed to set mode")
        unknown = await set_mode(kit, "POP", topic="Nowhere")
        assert (unknown.code, unknown.remark) == (17, "topic[Nowhere] not exist")
        group = await set_mode(kit, "POP", group="not legal!")
        assert (group.code, group.remark) == (26, "subscription group does not exist")
        assert (await set_mode(kit, "PUSH")).code == 29
        assert (await kit.call(RequestCode.SET_MESSAGE_REQUEST_MODE, body=b"nonsense")).code == 1
        assert fastjson.loads((await kit.ok(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)).body) == {
            "messageRequestModeMap": {}
        }


async def test_modes_are_there_after_a_restart(tmp_path: Path) -> None:
    """B12: in Apache's file, and for slaves."""
    mode = {"consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 3, "topic": TOPIC}
    expected = {"messageRequestModeMap": {TOPIC: {GROUP: mode}}}
    async with running_broker(tmp_path) as kit:
        await kit.embedded.create_topic(TOPIC, queues=2)
        assert (await set_mode(kit, "POP", share=3)).code == 0
        file = kit.embedded.folder / "config/messageRequestMode.json"
        assert fastjson.loads(file.read_bytes()) == expected
    async with running_broker(tmp_path) as kit:
        assert fastjson.loads((await kit.ok(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)).body) == expected
