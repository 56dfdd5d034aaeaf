"""Members that each get all messages: what the broker remembers for them, and groups that are too slow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cometmq.broker.groups.offsets import PROXY_FOR_BROADCAST
from cometmq.testing.clock import VirtualClock
from cometmq.wire.bodies.heartbeat import MessageModel
from tests.integration.client.consumer_kit import BRINGS_SUBSCRIPTION, GROUP, TOPIC, running_broker, tags

PROXY: dict[str, Any] = {
    "flag": BRINGS_SUBSCRIPTION,
    "subscription": "*",
    "request_source": PROXY_FOR_BROADCAST,
    "proxy_forward_client_id": "member",
}


async def test_a_member_that_comes_through_a_proxy_goes_on_where_it_was(tmp_path: Path) -> None:
    """B9."""
    async with running_broker(tmp_path) as visit:
        member, proxy = visit.visitor("member"), visit.visitor("proxy")
        await member.heartbeat(tags(TOPIC), model=MessageModel.BROADCASTING)
        for _ in range(5):
            await member.send(b"order")
        assert (await member.pull(3)).code == 0
        sent_back = await proxy.pull(5, **PROXY)
        assert (sent_back.code, sent_back.fields["nextBeginOffset"]) == (21, "3")
        assert (await proxy.pull(3, **PROXY)).code == 0


async def test_a_proxy_that_knows_no_offset_gets_one(tmp_path: Path) -> None:
    """B9."""
    async with running_broker(tmp_path) as visit:
        proxy = visit.visitor("proxy")
        for _ in range(5):
            await proxy.send(b"order")
        first = await proxy.pull(-1, **PROXY)
        assert (first.code, first.fields["nextBeginOffset"]) == (21, "0")
        visit.context.offsets.commit("somebody", f"{GROUP}@broadcast", TOPIC, 0, 4)
        other = {**PROXY, "proxy_forward_client_id": "other"}
        assert (await proxy.pull(-1, **other)).fields["nextBeginOffset"] == "4"


async def test_the_least_offset_is_committed_and_who_is_gone_is_forgotten(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with running_broker(tmp_path, clock=clock) as visit:
        first, second = visit.visitor("first"), visit.visitor("second")
        for visitor, offset in ((first, 2), (second, 4)):
            await visitor.heartbeat(tags(TOPIC), model=MessageModel.BROADCASTING)
            for _ in range(3):
                await visitor.send(b"order")
            await visitor.pull(offset)
        visit.context.broadcast_offsets.commit()
        assert visit.context.offsets.query(f"{GROUP}@broadcast", TOPIC, 0) == 2
        await first.leave()
        clock.advance(120_001)
        visit.context.broadcast_offsets.commit()
        assert visit.context.offsets.query(f"{GROUP}@broadcast", TOPIC, 0) == 4
        clock.advance(180_000)
        visit.context.broadcast_offsets.commit()
        assert visit.context.broadcast_offsets.count == 0


async def test_a_group_that_reads_from_far_back_is_switched_off_where_that_is_wanted(tmp_path: Path) -> None:
    """B8."""
    async with running_broker(
        tmp_path, disable_consume_if_consumer_read_slowly=True, consumer_fallbehind_threshold=10_000
    ) as visit:
        slow, quick = visit.visitor("slow"), visit.visitor("quick")
        await slow.heartbeat(tags(TOPIC), group="slow")
        await quick.heartbeat(tags(TOPIC), group="quick")
        for _ in range(3):
            await slow.send(bytes(5_000))
        await slow.pull(0, group="slow", max_msg_nums=1)
        await quick.pull(0, group="quick")
        slow_groups = visit.context.slow_groups
        assert slow_groups.lag_bytes("slow", TOPIC) > 10_000
        assert slow_groups.lag_bytes("quick", TOPIC) == 0
        slow_groups.disable()
        assert (await slow.pull(1, group="slow")).code == 16
        assert (await quick.pull(2, group="quick")).code == 0
