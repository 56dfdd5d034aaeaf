"""A broker is killed at random moments under a load of all kinds of messages, and every promise holds.

`KINDS_KILL_ROUNDS` says how often it is killed.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.answers import now_ms
from tests.compat.apache import CometBroker
from tests.integration.broker.message_types_load import (
    BROKER_NAME,
    NORMAL,
    POPPED,
    TIMED,
    TRANSACTIONS,
    KindsLoad,
    due_ms,
)
from tests.waiting import eventually

ROUNDS = int(os.environ.get("KINDS_KILL_ROUNDS", "3"))
SEED = 2026
LONGEST_LIFE_S = 1.5
PATIENCE_S = 60.0
REVIVE_QUEUES = 8
SETTINGS = {
    "namesrvAddr": "",
    "flushDiskType": "SYNC_FLUSH",
    "timerPrecisionMs": "100",
    "timerFlushIntervalMs": "200",
    "mappedFileSizeTimerLog": "1048576",
    "transactionCheckInterval": "300",
    "transactionTimeOut": "500",
    "transactionOpBatchInterval": "100",
    "transactionCheckMax": "10000",
}


@asynccontextmanager
async def running_load(folder: Path) -> AsyncIterator[KindsLoad]:
    with CometBroker(folder, "", BROKER_NAME, SETTINGS) as broker:
        load = KindsLoad(broker, SEED)
        # So that every topic has its queues before the first kill.
        for topic in (NORMAL, TRANSACTIONS, TIMED, POPPED):
            answer = await load.send(topic, b"0-first")
            assert answer.code == 0, answer
        load.start()
        try:
            yield load
        finally:
            await load.stop()


async def kill_and_start(load: KindsLoad, life_s: float) -> None:
    await asyncio.sleep(life_s)
    load.up.clear()
    killed_ms = now_ms()
    load.broker.kill()
    await asyncio.to_thread(load.broker.start)
    load.kills.append(f"killed {killed_ms}, back {now_ms()}")
    load.up.set()


async def wait_for(load: KindsLoad, topic: str, bodies: set[bytes]) -> list[tuple[bytes, int]]:
    """Wait until all these are in a topic; the bodies and store times of everything there."""
    there: list[tuple[bytes, int]] = []

    async def missing() -> list[bytes]:
        found = (await load.everything_in(topic)).values()
        there[:] = [(bytes(record.body), record.store_timestamp_ms) for record in found]
        return sorted(bodies - {body for body, _ in there})

    await eventually(missing, f"{topic} has everything", lambda left: not left, seconds=PATIENCE_S)
    return there


async def wait_until_popped(load: KindsLoad) -> None:
    """Wait until everything that was fed has been popped and acknowledged."""
    ledger = load.ledger
    await eventually(
        lambda: sorted(ledger.fed - ledger.done),
        "everything is popped and acknowledged",
        lambda left: not left,
        seconds=PATIENCE_S,
    )


@pytest.mark.timeout(120 + 20 * ROUNDS)
async def test_no_kill_breaks_a_promise(tmp_path: Path) -> None:
    """B4, B6, B12: all that was committed comes, nothing rolled back or acknowledged does, no timer early."""
    chance = random.Random(SEED)
    async with running_load(tmp_path) as load:
        for _ in range(ROUNDS):
            await kill_and_start(load, chance.uniform(0.05, LONGEST_LIFE_S))
        await load.stop_feeding()
        ledger = load.ledger

        normal = await load.everything_in(NORMAL)
        lost = {position: body for position, body in ledger.normal.items() if position not in normal}
        assert not lost
        assert all(bytes(normal[position].body) == body for position, body in ledger.normal.items())

        # The broker asks about its half messages one after the other: this one comes after all others.
        last = await load.begin_transaction(b"commit", ends=False)
        ended = await wait_for(load, TRANSACTIONS, {*ledger.committed, last})
        assert [body for body, _ in ended if body.startswith(b"rollback")] == []

        timed = await wait_for(load, TIMED, ledger.timed)
        early = {body: due_ms(body) - stored_ms for body, stored_ms in timed if stored_ms < due_ms(body)}
        assert not early

        await wait_until_popped(load)
        await show_that_nothing_comes_back(load)
        if ledger.broken:
            pytest.fail("\n".join((f"{len(ledger.broken)} promises are broken", *ledger.broken, *load.kills)))
        print(
            f"{ROUNDS} kills: {len(ledger.normal)} normal, {len(ledger.committed)} committed, "
            f"{len(ledger.timed)} timed, {len(ledger.fed)} popped, {len(ledger.acknowledged)} of them in time"
        )
        for promised in (ledger.normal, ledger.committed, ledger.timed, ledger.acknowledged):
            assert len(promised) > 20 * ROUNDS


async def show_that_nothing_comes_back(load: KindsLoad) -> None:
    """Leave a message unacknowledged in every revive queue; when all are back, all others would be."""
    await load.stop_popping()
    markers = {b"marker-%d" % number for number in range(REVIVE_QUEUES)}
    for body in markers:
        assert (await load.send(POPPED, body)).code == 0
    out: set[bytes] = set()
    back: set[bytes] = set()
    async with asyncio.timeout(PATIENCE_S):
        while back != markers:
            for message in await load.pop(1):
                if message.body not in out:
                    out.add(message.body)
                else:
                    back.add(message.body)
                    await load.ack(message)
