"""The embedded broker and the client on systems that lack functions of Linux (B1)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.testing import other_system
from tests.integration.testing.other_system import MODULES, OF_LIBC, OF_OS

PATIENCE_S = 100.0


@pytest.mark.parametrize(
    "hidden",
    [["macos"], ["windows"], OF_OS, MODULES, [*OF_LIBC, "MADV_RANDOM"], ["signals", "port"]],
    ids=["macos", "windows", "os", "modules", "libc", "loop"],
)
def test_a_broker_is_started_used_and_opened_again(tmp_path: Path, hidden: list[str]) -> None:
    """B1: in a process of its own, which finds no more than the other system has."""
    result = subprocess.run(
        [sys.executable, other_system.__file__, str(tmp_path), *hidden],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, "ok\n"), result.stderr
