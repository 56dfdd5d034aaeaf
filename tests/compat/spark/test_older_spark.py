"""The source and the sink on older releases of Spark, each in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import cometmq
from cometmq import Admin
from cometmq.testing.embedded import EmbeddedBroker
from tests.compat.jvm import PEERS
from tests.compat.spark import older_driver

RUN_S = 600.0


@pytest.mark.timeout(900)
@pytest.mark.parametrize("release", ["4.0", "4.1"])
def test_tables_streams_and_sinks_work_on_an_older_spark(release: str, tmp_path: Path) -> None:
    """D1, D2: a stream goes on from its checkpoint, and repeats a batch whose end was not recorded."""
    python = PEERS / f"spark-{release}" / "bin" / "python"
    with EmbeddedBroker() as rocketmq:
        for topic in ("numbers", "once", "plain", "copies"):
            rocketmq.call(rocketmq.create_topic(topic, queues=2))
        command = [str(python), older_driver.__file__, rocketmq.namesrv, str(rocketmq.folder), str(tmp_path)]
        sources = str(Path(cometmq.__file__).parents[1])
        environment = {**os.environ, "PYSPARK_PYTHON": str(python), "PYTHONPATH": sources}
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=RUN_S, env=environment, check=False
        )
        assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
        with Admin(namesrv=rocketmq.namesrv) as admin:
            progress = admin.consumer_progress("older", "numbers").values()
    found = json.loads(run.stdout.splitlines()[-1])

    assert found["version"].startswith(release)
    assert found["table"] == found["properties"] == list(range(10))
    assert (
        found["stream"]
        == found["once"]
        == found["plain"]
        == found["copies"]
        == found["log"]
        == list(range(25))
    )
    assert found["filtered"] == 2 * 3
    assert "maxOffsetsPerTrigger needs Spark 4.2 or newer" in found["refused"]
    assert sum(each.consumer_offset for each in progress) == 25
