"""`--log-format json` of the server commands: one JSON object a line, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cometmq.cli.main import app

ENDS_S = 60


@pytest.mark.parametrize(
    "arguments", [("namesrv", "--port", "0"), ("standalone", "--port", "0", "--namesrv-port", "0")]
)
def test_a_server_logs_one_object_a_line(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """B13, N9: from the start to the stop."""
    command = [sys.executable, "-m", "cometmq.cli.main", *arguments]
    with subprocess.Popen(
        [*command, "--log-format", "json", "--log-level", "info"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "HOME": str(tmp_path)},
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()  # it is ready
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=ENDS_S)
    events = [json.loads(line) for line in log.splitlines()]
    assert process.returncode == 0
    said = [event["message"] for event in events]
    assert "stopping" in said
    assert said[-1] == "stopped"
    assert {frozenset(event) for event in events} == {frozenset(("time", "level", "logger", "message"))}
    assert {event["level"] for event in events} <= {"info", "warning"}


def test_another_format_is_refused() -> None:
    result = CliRunner().invoke(app, ["namesrv", "--log-format", "xml"])
    assert result.exit_code == 2
    assert "'xml' is not one of" in result.output
