"""Key-value configuration: on disk before it is visible, and as it was after a restart (N8)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cometmq.model.errors import CometError
from cometmq.namesrv.kv import KvConfig
from cometmq.testing import FailingFiles
from tests.unit.namesrv.kit import MemoryFiles

PATH = Path("/namesrv/kvConfig.json")


def loaded(text: str | None) -> KvConfig:
    files = MemoryFiles()
    if text is not None:
        files.contents[PATH] = text.encode()
    kv = KvConfig(files, PATH)
    kv.load()
    return kv


@pytest.mark.parametrize("text", [None, "", " \n", "{}", '{"configTable":{}}', '{"configTable":null}'])
def test_no_file_or_nothing_in_it_is_an_empty_table(text: str | None) -> None:
    """N8: the first start finds nothing."""
    assert loaded(text).namespace("NS") is None


def test_the_file_of_apaches_name_server_is_read() -> None:
    """N8: recorded from it; an empty namespace is there, and has no keys."""
    kv = loaded(
        '{"configTable":{"ORDER_TOPIC_CONFIG":{"T1":"broker-a:4;broker-b:8"},'
        '"NS":{"k2":"v/2 \\"q\\" é €"},"E":{}}}'
    )
    assert kv.get("ORDER_TOPIC_CONFIG", "T1") == "broker-a:4;broker-b:8"
    assert kv.get("NS", "k2") == 'v/2 "q" é €'
    assert kv.namespace("E") == {}
    assert kv.get("E", "k") is None
    assert kv.get("nothing", "k") is None


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"configTable":[1]}', '{"configTable":{"NS":{"k":[]}}}', "\x00\x01"]
)
def test_a_broken_file_stops_the_start_with_a_hint(text: str) -> None:
    """N8: starting without it would lose it with the next change."""
    with pytest.raises(CometError, match=r"kvConfig\.json cannot be read: .*restore its \.bak"):
        loaded(text)


def test_a_file_that_cannot_be_read_stops_the_start() -> None:
    """N8: a failing disk is not an empty table."""
    files = FailingFiles(MemoryFiles())
    files.fail_reads()
    with pytest.raises(CometError, match="Input/output error"):
        KvConfig(files, PATH).load()


async def test_a_change_is_written_in_the_form_of_apaches_name_server() -> None:
    """N8: one line, no spaces, nothing escaped that need not be."""
    files = MemoryFiles()
    kv = KvConfig(files, PATH)
    await kv.put("NS", "k1", "v1")
    assert files.contents[PATH] == b'{"configTable":{"NS":{"k1":"v1"}}}'
    await kv.put("NS", "k2", 'v/2 "q" é €')
    assert files.contents[PATH] == '{"configTable":{"NS":{"k1":"v1","k2":"v/2 \\"q\\" é €"}}}'.encode()
    await kv.delete("NS", "k1")
    await kv.delete("NS", "k2")
    assert files.contents[PATH] == b'{"configTable":{"NS":{}}}', "the namespace stays"


async def test_what_was_written_is_there_after_a_restart() -> None:
    """N8: also empty values and empty namespaces."""
    files = MemoryFiles()
    kv = KvConfig(files, PATH)
    await kv.put("NS", "empty", "")
    await kv.put("Other", "k", "v")
    await kv.delete("Other", "k")
    again = KvConfig(files, PATH)
    again.load()
    assert again.namespace("NS") == {"empty": ""}
    assert again.namespace("Other") == {}


async def test_deleting_what_is_not_there_writes_nothing() -> None:
    """N8: neither a key nor a namespace comes of it."""
    files = MemoryFiles()
    kv = KvConfig(files, PATH)
    await kv.delete("NS", "k")
    assert files.contents == {}
    assert kv.namespace("NS") is None


async def test_a_change_that_cannot_be_written_changes_nothing() -> None:
    """N8: the caller learns why, and the next change works again."""
    files = FailingFiles(MemoryFiles())
    kv = KvConfig(files, PATH)
    await kv.put("NS", "k", "old")
    files.fail_writes()
    with pytest.raises(CometError, match="could not be stored: No space left on device; nothing was changed"):
        await kv.put("NS", "k", "new")
    with pytest.raises(CometError, match="nothing was changed"):
        await kv.delete("NS", "k")
    assert kv.get("NS", "k") == "old"
    files.heal()
    await kv.put("NS", "k", "new")
    assert kv.get("NS", "k") == "new"


async def test_a_change_is_visible_only_when_it_is_on_disk() -> None:
    """N8: who reads a value may rely on finding it after a crash."""

    class Watching(MemoryFiles):
        def replace(self, path: Path, data: bytes) -> None:
            seen.append(kv.get("NS", "k"))
            super().replace(path, data)

    seen: list[str | None] = []
    kv = KvConfig(Watching(), PATH)
    await kv.put("NS", "k", "one")
    await kv.put("NS", "k", "two")
    assert seen == [None, "one"]


async def test_changes_at_the_same_time_do_not_undo_each_other() -> None:
    """N8: they are made one after the other."""
    files = MemoryFiles()
    kv = KvConfig(files, PATH)
    await asyncio.gather(*(kv.put(f"NS{number % 3}", f"k{number}", "v") for number in range(30)))
    again = KvConfig(files, PATH)
    again.load()
    assert sum(len(again.namespace(f"NS{number}") or {}) for number in range(3)) == 30


async def test_namespaces_count_as_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """N8: also one whose keys were all deleted, which stays."""
    monkeypatch.setattr("cometmq.namesrv.kv.MAX_CHARACTERS", 1_000)
    kv = loaded(None)
    for number in range(3):
        await kv.put(f"{number:0300}", "k", "v")
        await kv.delete(f"{number:0300}", "k")
    with pytest.raises(CometError, match="at most namespaces, keys and values of 1000 characters"):
        await kv.put("9" * 300, "k", "v")
    monkeypatch.setattr("cometmq.namesrv.kv.MAX_KEYS", 4)
    await kv.put("n", "k", "v")
    with pytest.raises(CometError, match="at most 4 namespaces and keys"):
        await kv.put("n", "l", "v")
