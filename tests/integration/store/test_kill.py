"""A real process that writes to a real disk is killed, again and again, and the store is found in order."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.store.store_writer import WRITERS, store_in
from tests.unit.store.store_kit import messages_in

ROUNDS = 50
WRITER = Path(__file__).with_name("store_writer.py")


def written_until_killed(directory: Path, round_name: str, lines: int) -> dict[tuple[int, int], str]:
    """Run the writer, kill it when it has printed so many lines, and give what was acknowledged."""
    command = [sys.executable, str(WRITER), str(directory), round_name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        try:
            assert writer.stdout.readline() == "started\n"
            printed = [writer.stdout.readline() for _ in range(lines)]
        finally:
            writer.kill()
        printed += writer.stdout.readlines()
    acknowledged = {}
    for line in printed:
        if line.endswith("\n"):  # the kill may have come in the middle of the last one
            queue_id, queue_offset, body = line.split()
            place = int(queue_id), int(queue_offset)
            assert place not in acknowledged, "an offset was given twice"
            acknowledged[place] = body
    return acknowledged


@pytest.mark.timeout(300)
async def test_no_kill_loses_a_message_or_gives_an_offset_twice(tmp_path: Path) -> None:
    """B4, B5: 50 kills at random moments, synchronous flush; 0 acknowledged lost, 0 offsets twice."""
    chance = random.Random(2026)
    acknowledged: dict[tuple[int, int], str] = {}
    for number in range(ROUNDS):
        more = written_until_killed(tmp_path, f"round{number}", chance.randrange(1, 200))
        assert not acknowledged.keys() & more.keys(), "an offset of an earlier round was given again"
        acknowledged |= more
    store = store_in(str(tmp_path))
    recovered = await store.start()
    found = {
        (queue_id, record.queue_offset): bytes(record.body).decode().rstrip(".")
        for (_, queue_id), records in messages_in(store.files).items()
        for record in records
    }
    queues = [store.queues.get("orders", queue_id) for queue_id in range(WRITERS)]

    assert not recovered.stopped_orderly
    assert acknowledged.items() <= found.items()
    assert len(acknowledged) >= ROUNDS
    assert len(found) == sum(queue.max_offset for queue in queues)
    assert len(set(found.values())) == len(found)
    assert await store.stop()
