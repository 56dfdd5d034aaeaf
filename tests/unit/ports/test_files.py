"""Whole files are replaced in one step, with the text before beside them (N8)."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from cometmq.ports import system
from cometmq.ports.files import SystemFiles
from cometmq.testing import FailingFiles


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_missing_file_is_none(tmp_path: Path) -> None:
    """N8: that is no error."""
    assert SystemFiles().read(tmp_path / "nothing") is None


def test_the_first_text_makes_the_folder_and_no_back_up(tmp_path: Path) -> None:
    """N8: there is no text before it."""
    path = tmp_path / "a" / "b" / "kv.json"
    SystemFiles().replace(path, b"one")
    assert path.read_bytes() == b"one"
    assert names(path.parent) == {"kv.json"}


def test_the_previous_text_stays_as_back_up(tmp_path: Path) -> None:
    """N8: only the one before, and nothing else is left behind."""
    path = tmp_path / "kv.json"
    for text in (b"one", b"two", b"three"):
        SystemFiles().replace(path, text)
    assert path.read_bytes() == b"three"
    assert (tmp_path / "kv.json.bak").read_bytes() == b"two"
    assert names(tmp_path) == {"kv.json", "kv.json.bak"}


@pytest.mark.parametrize("failing", ["fsync", "write"])
def test_a_write_that_fails_leaves_the_text_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """N8: a full disk is noticed before anything is replaced."""
    path = tmp_path / "kv.json"
    SystemFiles().replace(path, b"one")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if failing == "fsync":
        monkeypatch.setattr(system, "sync", fail)
    else:
        monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        SystemFiles().replace(path, b"two")
    assert path.read_bytes() == b"one"
    assert names(tmp_path) == {"kv.json"}


def test_a_reader_sees_the_old_text_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N8: the file is renamed into place, complete and synced."""
    path = tmp_path / "kv.json"
    SystemFiles().replace(path, b"old")
    seen: list[tuple[str, bytes]] = []
    rename = Path.replace

    def watch(draft: Path, target: Path) -> Path:
        seen.append((target.name, path.read_bytes()))
        return rename(draft, target)

    monkeypatch.setattr(Path, "replace", watch)
    SystemFiles().replace(path, b"new")
    assert seen == [("kv.json.bak", b"old"), ("kv.json", b"old")]
    assert path.read_bytes() == b"new"


def test_a_folder_that_is_a_file_cannot_hold_one(tmp_path: Path) -> None:
    """N8: the error is the system's."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match=r"."):
        SystemFiles().replace(tmp_path / "file" / "kv.json", b"one")


def test_failing_files_fail_until_they_are_healed(tmp_path: Path) -> None:
    """A tool for tests: nothing on disk changes while they fail."""
    path = tmp_path / "kv.json"
    files = FailingFiles()
    files.replace(path, b"one")
    files.fail_writes()
    with pytest.raises(OSError, match="No space left") as caught:
        files.replace(path, b"two")
    assert caught.value.errno == errno.ENOSPC
    assert files.read(path) == b"one"
    files.fail_reads(errno.EACCES)
    with pytest.raises(PermissionError):
        files.read(path)
    files.heal()
    files.replace(path, b"two")
    assert files.read(path) == b"two"
    assert stat.S_ISREG(path.stat().st_mode)
