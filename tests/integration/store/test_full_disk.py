"""Brokers on a disk without room: they go on reading, or say why they do not, and are never killed.

The disk is a real one in memory, mounted in a namespace of its own. Where that is not permitted, the limit of
the size of files stands in for it: it refuses room in the same places, but would not kill.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.store.full_disk import mount_and

MEBIBYTES = 48
ROOT = Path(__file__).parents[3]
FILE_LIMIT = 50 * 1024 * 1024
LARGER = 64 * 1024 * 1024
Ended = dict[str, dict[str, Any]]

pytestmark = pytest.mark.timeout(400)


def ended_in(folder: Path, scenario: str) -> Ended:
    """How each run of a scenario ended, by its name."""
    program = [sys.executable, "-m", "tests.integration.store.full_disk", str(folder), scenario]
    told = subprocess.run(
        mount_and(folder, MEBIBYTES, program), cwd=ROOT, capture_output=True, text=True, check=False
    )
    if told.returncode != 0 and "mount" in told.stderr:
        return _ended_with_limited_files(folder)
    assert told.returncode == 0, told.stderr
    runs = [json.loads(line) for line in told.stdout.splitlines()]
    assert all(run["code"] >= 0 for run in runs), "a process was killed"
    assert all("Traceback" not in run["errors"] for run in runs), runs
    return {run["run"]: run for run in runs}


def _ended_with_limited_files(folder: Path) -> Ended:
    program = f"{sys.executable} -m tests.integration.store.full_disk"
    script = f'ulimit -f {FILE_LIMIT // 1024}; exec {program} serve "$1"'
    asked = json.dumps([str(folder), {"mappedFileSizeCommitLog": str(LARGER)}, 10, False])
    told = subprocess.run(
        ["bash", "-c", script, "bash", asked], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["sent"] == 0
    assert "no room in the log" in told.stderr
    return {}


def refused_with_reason(ended: dict[str, Any], folder: Path) -> None:
    assert ended["code"] == 1
    assert str(folder) in ended["errors"]
    assert "a start needs about" in ended["errors"]
    assert "make room" in ended["errors"]


def test_a_broker_on_a_full_disk_reads_or_says_what_it_lacks(tmp_path: Path) -> None:
    """B5: without room for `abort` it ends with a sentence; with a little it serves what is there."""
    ended = ended_in(tmp_path, "starts_on_a_full_disk")
    if not ended:
        return
    refused_with_reason(ended["new with 0"], tmp_path)
    refused_with_reason(ended["old with 0"], tmp_path)
    refused_with_reason(ended["killed with 0"], tmp_path)
    assert ended["new with 24576"]["code"] == 0
    assert "no room in the log" in ended["new with 600000"]["errors"]
    assert ended["old with 4096"]["read"] == 300
    assert ended["old with 65536"]["read"] == 300
    assert ended["killed with 65536"]["read"] == 600
    assert (ended["last"]["sent"], ended["last"]["read"]) == (10, 610)


def test_files_with_holes_that_apache_left_are_opened_on_a_full_disk(tmp_path: Path) -> None:
    """B7: a hole of a file on tmpfs takes room when it is read, which kills a process that just reads."""
    ended = ended_in(tmp_path, "starts_on_what_apache_left")
    if not ended:
        return
    for name, messages in (("store-clean", 151), ("store-crashed", 453)):
        refused_with_reason(ended[f"{name} with 0"], tmp_path)
        assert ended[f"{name} with 262144"]["read"] == messages


def test_a_disk_that_fills_up_while_a_broker_runs_refuses_messages_and_loses_none(tmp_path: Path) -> None:
    ended = ended_in(tmp_path, "fills_while_it_runs")
    if not ended:
        return
    full = ended["until full"]
    assert full["sent"] == full["read"] > 1000
    assert "No space left on device; make room on the broker's disk" in full["refusal"]
    for again in ("again", "synchronous"):
        assert (ended[again]["sent"], ended[again]["read"]) == (0, full["read"])
    assert ended["with room"]["read"] == full["read"] + 10


def test_the_commands_read_on_a_full_disk_or_say_what_they_lack(tmp_path: Path) -> None:
    ended = ended_in(tmp_path, "commands_on_a_full_disk")
    if not ended:
        return
    assert ended["inspect"]["code"] == 0
    assert ended["dump"]["code"] == 0
    assert ended["dump"]["lines"] == 300
    refused_with_reason(ended["standalone"], tmp_path)


def test_a_broker_that_may_not_write_large_files_reads_and_refuses(tmp_path: Path) -> None:
    """The same without a disk of its own, wherever tests run."""
    assert _ended_with_limited_files(tmp_path) == {}
    assert os.listdir(tmp_path)
