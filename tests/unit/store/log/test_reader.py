"""Records that lie on the disk: which these are, and that near ones are read together."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq.ports.disk import SystemDisk, SystemFile
from cometmq.store.log.mapped_files import MappedFiles
from cometmq.store.log.reader import LogReader

FILE_SIZE = 256 * 1024


def _log(folder: Path) -> LogReader:
    for number in range(2):
        (folder / f"{number * FILE_SIZE:020}").write_bytes(bytes(FILE_SIZE))
    log = LogReader(MappedFiles(SystemDisk(), folder, FILE_SIZE))
    log.load()
    return log


def test_records_near_each_other_are_fetched_in_one_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[tuple[str, int, int]] = []
    monkeypatch.setattr(SystemFile, "fetch", lambda file, *ends: fetched.append((file.path.name, *ends)))
    log = _log(tmp_path)
    end = FILE_SIZE
    log.fetch([(end + 10, 90), (500, 100), (0, 200), (100_000, 50), (end - 100, 100), (3 * end, 10)])
    first, second = f"{0:020}", f"{end:020}"
    assert fetched == [
        (first, 0, 600),
        (first, 100_000, 100_050),
        (first, end - 100, end),
        (second, 10, 100),
    ]


def test_only_what_is_not_in_memory_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemFile, "is_in_memory", lambda file, start, end: start < 1000 and end <= 1000)
    log = _log(tmp_path)
    places = [(0, 100), (900, 200), (5000, 10), (FILE_SIZE + 5, 10), (3 * FILE_SIZE, 10)]
    assert log.on_disk(places) == [(900, 200), (5000, 10)]
