"""The same results wherever Spark runs: on a cluster of its own, and through Spark Connect (D1)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.spark import live_connect, live_driver
from tests.spark.live_kit import Live, numbers

PROJECT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
COUNT = 1000
RUN_S = 600.0


@contextmanager
def running_process(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is gone at the end."""
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_TESTING": "1",  # with it, Spark Connect takes a free port
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=PROJECT
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(30)


def finish(command: list[str], log: Path) -> None:
    with running_process(command, log) as process:
        assert process.wait(RUN_S) == 0, log.read_text()[-3000:]


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A standalone cluster: a master and two workers, each a process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    run = [str(SPARK_HOME / "bin" / "spark-class")]
    address = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    with ExitStack() as processes:
        command = [*run, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port)]
        processes.enter_context(running_process([*command, "--webui-port", "0"], tmp_path / "master.log"))
        for number in range(2):
            command = [*run, f"{deploy}.worker.Worker", address, "--cores", "1", "--memory", "512m"]
            command += [
                "--host",
                "127.0.0.1",
                "--webui-port",
                "0",
                "--work-dir",
                str(tmp_path / f"work-{number}"),
            ]
            processes.enter_context(running_process(command, tmp_path / f"worker-{number}.log"))
        yield address


@pytest.mark.timeout(900)
def test_a_cluster_of_a_master_and_two_workers_reads_the_same(
    live: Live, master: str, tmp_path: Path
) -> None:
    """D1"""
    topic = live.topic(queues=4)
    live.send_numbers(topic, range(COUNT))
    script = [sys.executable, live_driver.__file__, live.rocketmq.namesrv, topic, str(tmp_path)]
    finish([*script, "availableNow", master], tmp_path / "driver.log")
    assert live.written(tmp_path) == numbers(live.table(topic)) == list(range(COUNT))
    applications = [list((tmp_path / f"work-{number}").glob("app-*/*")) for number in range(2)]
    assert all(applications), "both workers had an executor"


@pytest.mark.timeout(900)
def test_spark_connect_reads_the_same(live: Live, tmp_path: Path) -> None:
    """D1"""
    topic = live.topic(queues=4)
    live.send_numbers(topic, range(COUNT))
    script = [sys.executable, "-m", live_connect.__name__, live.rocketmq.namesrv, topic, str(tmp_path)]
    finish(script, tmp_path / "driver.log")
    table = numbers(live.spark.read.parquet(str(tmp_path / "table")))
    assert table == live.written(tmp_path) == list(range(COUNT))
