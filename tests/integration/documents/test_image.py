"""`deploy/try-image.sh`, with a stand-in for the container engine that runs the commands on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from cometmq.testing import EmbeddedBroker

SCRIPT: Final = Path(__file__).parents[3] / "deploy" / "try-image.sh"
ENGINE: Final = """#!/bin/sh
echo "$1" >> "$CALLS"
[ "$1" = exec ] || exit 0
shift 5 # exec -e VARIABLE container cometmq
exec "$PYTHON" -c 'from cometmq.cli.main import main; main()' "$@"
"""


def run(path: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(SCRIPT), "ours:1"],
        env={"PATH": path, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_image_is_built_started_used_and_stopped(tmp_path: Path) -> None:
    """B13: the container gets a message and gives it back; afterwards it is removed."""
    engine, calls = tmp_path / "podman", tmp_path / "calls"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    with EmbeddedBroker() as broker:
        done = run(
            f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
            CALLS=str(calls),
            PYTHON=sys.executable,
            COMETMQ_NAMESRV=broker.namesrv,
        )
    assert done.returncode == 0, done.stderr
    assert "hello from ours:1" in done.stdout
    assert done.stdout.endswith("the image ours:1 works\n")
    used = calls.read_text().split()
    assert used[:2] == ["build", "run"]
    assert used[-2:] == ["stop", "rm"]


def test_without_an_engine_the_script_says_what_to_install(tmp_path: Path) -> None:
    """B13"""
    for tool in ("dirname", "sleep", "grep"):
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / tool).symlink_to(found)
    done = run(str(tmp_path))
    assert (done.returncode, done.stdout) == (3, "")
    assert "install podman or docker" in done.stderr
