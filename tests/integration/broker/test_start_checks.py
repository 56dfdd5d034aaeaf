"""Stores and settings that a broker refuses at its start, because it would misread what is there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq.broker.config import BrokerConfig
from cometmq.model.errors import SettingsError, StoreError
from cometmq.store.config import StoreConfig
from cometmq.wire.codes import RequestCode
from tests.integration.broker.broker_kit import running_broker


def topics(root: Path, **attributes: dict[str, str]) -> None:
    """Topics with attributes, as a broker leaves them behind."""
    table = {
        name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "attributes": each}
        for name, each in attributes.items()
    }
    (root / "config").mkdir(parents=True)
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


def file(root: Path, name: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x")


UNREADABLE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a topic with batch queues": (
        lambda root: topics(root, Bills={"queue.type": "BatchCQ"}, Orders={"queue.type": "SimpleCQ"}),
        r"topics with queue.type = BatchCQ: Bills; consume them to their end with Apache's broker",
    ),
    "a compacted topic": (
        lambda root: topics(root, Prices={"cleanup.policy": "COMPACTION"}),
        r"topics with cleanup.policy = COMPACTION: Prices; consume",
    ),
    "many such topics": (
        lambda root: topics(root, **{f"t{n}": {"queue.type": "BatchCQ"} for n in range(7)}),
        r"BatchCQ: t0, t1, t2, t3, t4, …; consume",
    ),
    "batch queues of a topic that was deleted": (
        lambda root: file(root, "batchconsumequeue/Bills/0/00000000000000000000"),
        r"batch consume queues, in batchconsumequeue: Bills; consume",
    ),
    "queues in RocksDB": (
        lambda root: file(root, "consumequeue/CURRENT"),
        r"consumequeue is a RocksDB database, and only stores of plain files are read; let Apache's broker",
    ),
    "tables in RocksDB": (
        lambda root: file(root, "config/topics/CURRENT"),
        r"config/topics is a RocksDB database",
    ),
    "a log of DLedger": (
        lambda root: file(root, "dledger-n0/data/00000000000000000000"),
        r"dledger-n0 is the log of a DLedger group.*move that folder away",
    ),
}


@pytest.mark.parametrize("name", UNREADABLE)
async def test_a_store_that_would_be_misread_is_refused_and_left_alone(name: str, tmp_path: Path) -> None:
    """B13: the error names what is there and says what to do; nothing is changed."""
    make, expected = UNREADABLE[name]
    root = tmp_path / "store"
    make(root)
    before = sorted(root.rglob("*"))
    with pytest.raises(StoreError, match=f"cannot be served by this broker: .*{expected}"):
        async with running_broker(tmp_path):
            pass
    assert sorted(root.rglob("*")) == before


async def test_what_is_usual_is_not_refused(tmp_path: Path) -> None:
    """B13: attributes that say what is so anyway, and folders that are empty."""
    root = tmp_path / "store"
    topics(root, Bills={"queue.type": "SimpleCQ", "cleanup.policy": "DELETE"})
    (root / "batchconsumequeue").mkdir()
    async with running_broker(tmp_path) as kit:
        assert (await kit.send("Bills")).code == 0


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"enable_controller_mode": True}, r"enableControllerMode = true is not supported.*set it to false"),
        ({"config_manager_version": "v2"}, r"configManagerVersion = v2 is not supported.*choose v1"),
        ({"message_store_plug_in": "a.TieredMessageStore"}, r"messageStorePlugIn = a.Tiered.*leave it out"),
    ],
)
def test_settings_for_another_kind_of_broker_are_refused(settings: dict[str, object], expected: str) -> None:
    """B13."""
    with pytest.raises(SettingsError, match=expected):
        BrokerConfig(**settings)  # type: ignore[arg-type]


def test_a_log_of_dledger_is_refused_by_its_setting() -> None:
    """B13."""
    with pytest.raises(SettingsError, match="enableDLegerCommitLog = true is not supported"):
        StoreConfig(enable_d_leger_commit_log=True)


async def test_such_a_setting_cannot_be_made_while_the_broker_runs() -> None:
    """B13: the next start would be refused."""
    async with running_broker() as kit:
        answer = await kit.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"enableControllerMode=true\n")
        assert answer.code == 29
        assert "enableControllerMode = true is not supported" in (answer.remark or "")
        assert not kit.broker.context.settings.broker.enable_controller_mode
