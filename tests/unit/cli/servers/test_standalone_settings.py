"""The settings of the brokers of a standalone system."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq.cli.servers.standalone import _broker_settings


def test_a_size_from_the_environment_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B4: variables are stronger than what is usual, and weaker than flags."""
    usual = _broker_settings(tmp_path, 0, 0, "127.0.0.1", {})
    assert usual["mappedFileSizeCommitLog"] == str(64 * 1024 * 1024)
    monkeypatch.setenv("COMETMQ_MAPPED_FILE_SIZE_COMMIT_LOG", "4096000")
    assert usual.keys() - _broker_settings(tmp_path, 0, 0, "127.0.0.1", {}).keys() == {
        "mappedFileSizeCommitLog"
    }
    flag = {"mappedFileSizeCommitLog": "8192000"}
    assert _broker_settings(tmp_path, 0, 0, "127.0.0.1", flag)["mappedFileSizeCommitLog"] == "8192000"
