"""A query whose driver is killed at any moment and started again loses nothing and doubles nothing (D1).

`SPARK_KILL_ROUNDS` says how often it is killed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.spark import live_driver
from tests.spark.live_kit import Live
from tests.waiting import wait_until

ROUNDS = int(os.environ.get("SPARK_KILL_ROUNDS", "3"))
LONGEST_S = 3.0


class Driver:
    """The process of a driver, with everything that it started."""

    def __init__(self, live: Live, topic: str, folder: Path, trigger: str) -> None:
        self._log = (folder / "driver.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, live_driver.__file__, live.rocketmq.namesrv, topic, str(folder), trigger],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )

    def kill(self) -> None:
        """As if the power went: the driver and its Java, at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()

    def wait(self, timeout_s: float) -> int:
        code = self.process.wait(timeout_s)
        self._log.close()
        return code


def batches(folder: Path) -> int:
    """How many batches have begun."""
    planned = folder / "checkpoint" / "offsets"
    return sum(name.name.isdecimal() for name in planned.iterdir()) if planned.exists() else 0


@pytest.mark.timeout(300 + 120 * ROUNDS)
def test_a_query_that_is_killed_and_started_again_reads_every_message_once(
    live: Live, tmp_path: Path
) -> None:
    """D1"""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    topic = live.topic(queues=3)
    sent = 0
    for _ in range(ROUNDS):
        live.send_numbers(topic, range(sent, sent + 2000))
        sent += 2000
        before = batches(tmp_path)
        driver = Driver(live, topic, tmp_path, "forever")
        try:
            wait_until(
                lambda: batches(tmp_path) > before or driver.process.poll() is not None,  # noqa: B023
                "a batch has begun",
                seconds=120,  # Java, Spark and its Python start first
            )
            time.sleep(chance.uniform(0, LONGEST_S))  # not waiting for anything: a moment like any other
            assert driver.process.poll() is None, (tmp_path / "driver.log").read_text()[-3000:]
        finally:
            driver.kill()

    last = Driver(live, topic, tmp_path, "availableNow")
    try:
        assert last.wait(300) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    finally:
        if last.process.poll() is None:
            last.kill()

    assert live.written(tmp_path) == list(range(sent))
