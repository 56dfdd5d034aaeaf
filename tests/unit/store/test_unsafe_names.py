"""Topics that would lead out of the store: nothing outside of it is made, changed or removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq.ports.disk import SystemDisk
from cometmq.ports.folders import SystemFolders
from cometmq.ports.names import UnsafeNameError
from cometmq.store.queue.consume_queues import ConsumeQueues
from cometmq.store.status import PutStatus
from cometmq.store.tools.rebuild import rebuild_store
from cometmq.store.tools.verify import verify_store
from cometmq.testing.clock import VirtualClock
from tests.unit.store.store_kit import Engine, a_message, small

LEADING_OUT = ["../outside", "..", ".", "", "../../outside", "/tmp/outside", "a/../../../outside"]


@pytest.mark.parametrize("topic", [*LEADING_OUT, "x\0y", "x" * 300])
@pytest.mark.parametrize("with_extensions", [False, True])
def test_queues_are_neither_made_nor_destroyed_outside_of_their_folder(
    tmp_path: Path, topic: str, with_extensions: bool
) -> None:
    ext_folder = tmp_path / "ext" if with_extensions else None
    queues = ConsumeQueues(SystemDisk(), tmp_path / "consumequeue", 400, ext_folder=ext_folder)
    (tmp_path / "outside").write_text("precious")
    with pytest.raises(UnsafeNameError):
        queues.get(topic, 0)
    with pytest.raises(UnsafeNameError):
        queues.destroy(topic, [])
    assert (tmp_path / "outside").read_text() == "precious"


def files_and_folders(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


@pytest.mark.parametrize("topic", LEADING_OUT)
@pytest.mark.parametrize("in_order", [True, False], ids=["stopped", "killed"])
def test_a_record_with_such_a_topic_is_passed_over_by_a_recovery(
    tmp_path: Path, topic: str, in_order: bool
) -> None:
    """Whoever wrote it into the log: the messages around it are there, and nothing is outside."""
    root = tmp_path / "store"
    engine = Engine(SystemDisk(), small(root))
    assert engine.put(a_message(b"first")).status is PutStatus.PUT_OK
    assert engine.files.log.append(a_message(b"evil", topic=topic)) is PutStatus.PUT_OK
    assert engine.put(a_message(b"last")).status is PutStatus.PUT_OK
    engine.sync_log()
    if in_order:
        engine.close()
    again = Engine(SystemDisk(), small(root))
    assert again.files.queues.topics() == ["orders"]
    assert again.files.queues.get("orders", 0).max_offset == 2
    again.close()
    assert files_and_folders(tmp_path) - {f"store/{name}" for name in files_and_folders(root)} == {"store"}
    assert {path.name for path in (root / "consumequeue").iterdir()} == {"orders"}


@pytest.mark.parametrize("topic", ["../outside", "../../outside"])
def test_a_rebuild_leaves_such_a_topic_out(tmp_path: Path, topic: str) -> None:
    root = tmp_path / "store"
    engine = Engine(SystemDisk(), small(root))
    engine.put(a_message(b"first"))
    engine.files.log.append(a_message(b"evil", topic=topic))
    engine.close()
    rebuilt = rebuild_store(SystemDisk(), SystemFolders(), VirtualClock(), root, small(root))
    assert rebuilt.left_out_topics == [topic]
    assert [path.name for path in (root / "consumequeue").iterdir()] == ["orders"]
    assert {path.name for path in tmp_path.iterdir()} == {"store"}
    assert not [path for path in root.iterdir() if path.name == "outside"]
    verify_store(SystemDisk(), root)


@pytest.mark.parametrize("name", ["../outside", "%LMQ%../../outside", "%LMQ%/tmp/outside", "", ".."])
def test_a_message_that_names_such_a_light_queue_is_refused(tmp_path: Path, name: str) -> None:
    config = small(tmp_path / "store", enable_lmq=True, enable_multi_dispatch=True)
    engine = Engine(SystemDisk(), config)
    block = f"INNER_MULTI_DISPATCH\x01%LMQ%fine,{name}\x02".encode()
    assert engine.put(a_message(properties_block=block)).status is PutStatus.MESSAGE_ILLEGAL
    engine.close()
    assert {path.name for path in tmp_path.iterdir()} == {"store"}
