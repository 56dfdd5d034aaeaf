"""Who is told that the smallest id of a group has changed (N4, N6)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from cometmq.model.errors import ConnectError
from cometmq.namesrv import notices as notices_module
from cometmq.namesrv.notices import MinIdNotices
from cometmq.namesrv.tables import MinIdChange
from cometmq.remoting.client import RemotingClient
from cometmq.wire.frame.command import Payload
from cometmq.wire.header.schema import Fields, Header, encode_fields

NAME = "broker-a"
NOBODY: frozenset[str] = frozenset()


class RecordingClient(RemotingClient):
    """Remembers one-way requests; addresses in `unreachable` cannot be reached."""

    def __init__(self, unreachable: frozenset[str] = NOBODY) -> None:
        super().__init__()
        self.sent: dict[str, Mapping[str, str]] = {}
        self._unreachable = unreachable

    async def oneway(
        self,
        address: str,
        code: int,
        header: Fields | None = None,
        *,
        body: Payload = b"",
        timeout_s: float = 3.0,
    ) -> None:
        assert code == 905
        assert isinstance(header, Header)
        if address in self._unreachable:
            raise ConnectError(f"cannot connect to {address}")
        self.sent[address] = encode_fields(header)


async def told(
    change: MinIdChange, unreachable: frozenset[str] = frozenset()
) -> dict[str, Mapping[str, str]]:
    client = RecordingClient(unreachable)
    MinIdNotices(client).send(change)
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)
    return client.sent


async def test_when_a_smaller_id_comes_everyone_but_itself_is_told() -> None:
    """N4: with its replication address."""
    sent = await told(MinIdChange(NAME, {1: "a:1", 2: "b:1", 3: "c:1"}, ha_server_addr="a:2"))
    expected = {"minBrokerId": "1", "minBrokerAddr": "a:1", "haBrokerAddr": "a:2"}
    assert sent == {"b:1": expected, "c:1": expected}


async def test_when_the_smallest_id_leaves_everyone_is_told() -> None:
    """N6: with the address that went."""
    sent = await told(MinIdChange(NAME, {1: "a:1", 2: "b:1"}, offline_addr="z:1"))
    expected = {"minBrokerId": "1", "minBrokerAddr": "a:1", "offlineBrokerAddr": "z:1"}
    assert sent == {"a:1": expected, "b:1": expected}


async def test_the_only_member_is_told_about_itself() -> None:
    """N4: it is the whole group."""
    sent = await told(MinIdChange(NAME, {3: "c:1"}, ha_server_addr="c:2"))
    assert list(sent) == ["c:1"]


async def test_a_member_that_cannot_be_reached_keeps_nobody_from_the_news() -> None:
    """N6: it finds out by itself later."""
    sent = await told(MinIdChange(NAME, {1: "a:1", 2: "b:1"}, offline_addr="z:1"), frozenset({"a:1"}))
    assert list(sent) == ["b:1"]


async def test_notices_under_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """N6: a storm of changes does not pile up without limit."""
    monkeypatch.setattr(notices_module, "_MAX_UNDER_WAY", 2)
    sent = await told(MinIdChange(NAME, {number: f"{number}:1" for number in range(5)}, offline_addr="z:1"))
    assert list(sent) == ["0:1", "1:1"]
