"""The offsets of a consumer that broadcasts, in a file that Java's client reads and writes too."""

from __future__ import annotations

from pathlib import Path

from cometmq.client.consumer.offset_store import LocalOffsets, encode_offsets
from cometmq.model.queue import MessageQueue
from tests.compat.apache import run_java

QUEUES = [MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)]


async def test_java_goes_on_where_we_stopped_and_we_where_java_stopped(tmp_path: Path) -> None:
    """C3"""
    ours = LocalOffsets(tmp_path, "10.0.0.1@DEFAULT", "billing")
    for number, queue in enumerate(QUEUES):
        ours.update(queue, 5 + number, increase_only=True)
    await ours.persist(QUEUES)
    file = tmp_path / "10.0.0.1@DEFAULT" / "billing" / "offsets.json"

    printed = run_java("LocalOffsets.java", str(file), home=tmp_path / "home")

    assert printed.splitlines() == ["orders broker-a 0 5", "orders broker-a 1 6"]
    theirs = LocalOffsets(tmp_path, "10.0.0.1@DEFAULT", "billing")
    assert [await theirs.read(queue) for queue in QUEUES] == [6, 7]
    # The order of entries is a hash table's in Java; what stands in an entry, and around it, is the same.
    assert sorted(file.read_bytes()) == sorted(encode_offsets(dict(zip(QUEUES, (6, 7), strict=True))))
