"""Messages of stores by ids and keys: the index leads to what a search through everything finds."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, In, InputPartition

from cometmq.spark.log.options import log_options
from cometmq.spark.log.partitions import LogOffsets, LogRange
from cometmq.spark.log.source import LogReader
from tests.unit.spark.log.test_source import Row, matching, places, read, reader_of
from tests.unit.spark.stores_kit import unpacked

TOPICS = {"topicPattern": "Vec.*"}


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("store-clean.tar.gz", tmp_path_factory.mktemp("clean"))


def has_id(row: Row, *ids: str) -> bool:
    return row["msgId"] in ids


def planned(path: Path, *filters: Any, **options: str) -> list[InputPartition]:
    return list(reader_of(path, *filters, **options).partitions())


def test_the_index_leads_to_messages_by_their_ids(apache: Path) -> None:
    """D3: to each of them, and to no more of the log than needed."""
    rows = [row for row in read(apache, **TOPICS) if row["msgId"]]
    assert len(rows) > 50
    for row in rows:
        found = read(apache, EqualTo(("msgId",), row["msgId"]), **TOPICS)
        wanted = matching(rows, lambda each, row=row: has_id(each, row["msgId"]))  # type: ignore[misc]
        assert set(wanted) <= set(places(found))
        assert len(found) <= len(wanted) + 2  # others whose keys have the same hash
    ids = [row["msgId"] for row in rows[::7]]
    found = read(apache, In(("msgId",), tuple(ids)), **TOPICS)
    assert set(ids) <= {row["msgId"] for row in found}
    first, *others = planned(apache, EqualTo(("msgId",), ids[0]), **TOPICS)
    assert isinstance(first, LogOffsets)
    assert sum(part.stop - part.start for part in others if isinstance(part, LogRange)) < 2_000


def test_an_id_that_nobody_has_leads_to_nothing(apache: Path) -> None:
    assert [
        row for row in read(apache, EqualTo(("msgId",), "0" * 32), **TOPICS) if has_id(row, "0" * 32)
    ] == []


def test_an_id_that_says_where_its_message_is_leads_there(apache: Path) -> None:
    """D3: that of a broker, which messages without a unique key have."""
    (row, *_) = read(apache, **TOPICS)
    offset_id = f"7F00000100002A9F{row['physicalOffset']:016X}"
    assert row["physicalOffset"] in places(read(apache, EqualTo(("msgId",), offset_id), **TOPICS))


def test_messages_are_chosen_by_their_keys(apache: Path) -> None:
    """D3: exactly those that have one of them."""
    rows = read(apache, **TOPICS)
    keys = sorted({key for row in rows for key in row["keys"] or ()})
    assert len(keys) > 3
    for key in keys:
        wanted = matching(rows, lambda row, key=key: key in (row["keys"] or ()))  # type: ignore[misc]
        assert places(read(apache, keys=key, **TOPICS)) == wanted
    some = matching(rows, lambda row: bool({keys[0], keys[-1]} & set(row["keys"] or ())))
    assert places(read(apache, keys=f"{keys[0]} {keys[-1]}", **TOPICS)) == some
    assert read(apache, keys="nobody-has-it", **TOPICS) == []
    assert any(isinstance(part, LogOffsets) for part in planned(apache, keys=keys[0], **TOPICS))


def test_keys_can_be_asked_for_without_their_column(apache: Path) -> None:
    rows = read(apache, **TOPICS)
    (key, *_) = sorted({key for row in rows for key in row["keys"] or ()})
    reader = LogReader(log_options({"path": str(apache), "keys": key, **TOPICS}), ["physicalOffset"])
    found = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    wanted = matching(rows, lambda row: key in (row["keys"] or ()))
    assert found == [{"physicalOffset": place} for place in wanted]


def test_without_an_index_or_after_a_crash_all_is_searched(apache: Path, tmp_path: Path) -> None:
    rows = read(apache, **TOPICS)
    (key, *_) = sorted({key for row in rows for key in row["keys"] or ()})
    wanted = matching(rows, lambda row: key in (row["keys"] or ()))
    without, crashed = tmp_path / "without", tmp_path / "crashed"
    for root in (without, crashed):
        shutil.copytree(apache, root)
    shutil.rmtree(without / "index")
    (crashed / "abort").touch()
    for root in (without, crashed):
        assert not any(isinstance(part, LogOffsets) for part in planned(root, keys=key, **TOPICS))
        assert set(wanted) == set(places(read(root, keys=key, **TOPICS)))


def test_what_the_index_does_not_reach_is_searched(apache: Path, tmp_path: Path) -> None:
    """D3: as when the broker is about to write it there."""
    root = tmp_path / "store"
    shutil.copytree(apache, root)
    rows = read(root, **TOPICS)
    (file,) = (root / "index").iterdir()
    content = bytearray(file.read_bytes())
    middle = sorted(row["physicalOffset"] for row in rows)[len(rows) // 2]
    struct.pack_into(">q", content, 24, middle)  # where the last record is that was indexed
    file.write_bytes(content)
    for row in rows:
        if row["msgId"]:
            found = read(root, EqualTo(("msgId",), row["msgId"]), **TOPICS)
            assert places(found).count(row["physicalOffset"]) == 1


def test_an_index_that_grows_meanwhile_is_no_help(apache: Path, tmp_path: Path) -> None:
    """D3: what a key leads to may lie behind what was there when the file was opened."""
    root = tmp_path / "store"
    shutil.copytree(apache, root)
    rows = [row for row in read(root, **TOPICS) if row["msgId"]]
    (file,) = (root / "index").iterdir()
    content = bytearray(file.read_bytes())
    (count,) = struct.unpack_from(">i", content, 36)
    content[40 : 40 + 500 * 4] = struct.pack(">i", count + 1) * 500
    file.write_bytes(content)
    asked = EqualTo(("msgId",), rows[0]["msgId"])
    assert not any(isinstance(part, LogOffsets) for part in planned(root, asked, **TOPICS))
    assert rows[0]["physicalOffset"] in places(read(root, asked, **TOPICS))
