"""Writers are killed at random moments; what they write is there once.

`SPARK_KILL_ROUNDS` says how often the driver of a streaming query is killed, `SINK_KILL_ROUNDS` how often a
program that writes as tasks do, which starts in a fraction of the time.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, Popen

import pytest

from cometmq.testing.embedded import EmbeddedBroker
from tests.spark.sink_kit import bodies
from tests.spark.sink_writer import PARTITIONS, ROWS

ROUNDS = int(os.environ.get("SPARK_KILL_ROUNDS", "2"))
WRITER_ROUNDS = int(os.environ.get("SINK_KILL_ROUNDS", "5"))
SEED = 2026
TOPIC = "T"
FILES, LINES = 20 * ROUNDS, 700
PATIENCE_S = 300.0


@contextmanager
def running(program: str, output: Path, *arguments: str) -> Iterator[Popen[bytes]]:
    """The program in a session of its own, so that nothing of it is left."""
    command = [sys.executable, "-m", f"tests.spark.{program}", *arguments]
    with output.open("wb") as file:
        process = Popen(command, stdin=DEVNULL, stdout=file, stderr=file, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):  # it has come to its end
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def stored(broker: EmbeddedBroker) -> int:
    queues = broker.broker.context.store.queues.by_topic.get(TOPIC, {})
    return sum(queue.max_offset for queue in queues.values())


def wait_for_rows(broker: EmbeddedBroker, process: Popen[bytes], rows: int, output: Path) -> None:
    """Wait until so many rows are there, or the program is through."""
    deadline = time.monotonic() + PATIENCE_S
    while stored(broker) < rows and process.poll() is None:
        assert time.monotonic() < deadline, f"{stored(broker)} of {rows} rows: {output.read_text()[-3000:]}"
        time.sleep(0.002)
    assert process.poll() in (None, 0), output.read_text()[-3000:]


def kill_again_and_again(
    broker: EmbeddedBroker, program: str, folder: Path, arguments: list[str], total: int, rounds: int
) -> None:
    """Kill a program so often while it writes `total` rows, then let it come to its end."""
    broker.call(broker.create_topic(TOPIC, queues=4))
    chance, output = random.Random(SEED), folder / "output"
    for left in range(rounds, 0, -1):
        with running(program, output, *arguments) as process:
            step = (total - stored(broker)) // (left + 1)
            wait_for_rows(broker, process, stored(broker) + chance.randint(1, 2 * step), output)
            time.sleep(chance.uniform(0, 0.01))  # a moment that has nothing to do with the rows
    with running(program, output, *arguments) as process:
        assert process.wait(PATIENCE_S) == 0, output.read_text()[-3000:]
    assert sorted(int(body) for body in bodies(broker, TOPIC)) == list(range(total))


@pytest.mark.timeout(int(PATIENCE_S) * (WRITER_ROUNDS + 2))
def test_no_kill_of_a_writer_costs_or_doubles_a_row(tmp_path: Path) -> None:
    """D2."""
    batches = 4 * WRITER_ROUNDS
    with EmbeddedBroker(settings={"autoCreateTopicEnable": "false"}) as broker:
        arguments = [broker.namesrv, str(tmp_path / "checkpoint"), str(batches)]
        total = batches * PARTITIONS * ROWS
        kill_again_and_again(broker, "sink_writer", tmp_path, arguments, total, WRITER_ROUNDS)


@pytest.mark.timeout(int(PATIENCE_S) * (ROUNDS + 2))
def test_no_kill_of_the_driver_costs_or_doubles_a_row(tmp_path: Path) -> None:
    """D2."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(FILES):
        lines = "".join(f"{number * LINES + line}\n" for line in range(LINES))
        (folder / f"{number:04d}.txt").write_text(lines)
    with EmbeddedBroker(settings={"autoCreateTopicEnable": "false"}) as broker:
        arguments = [broker.namesrv, TOPIC, str(folder), str(tmp_path / "checkpoint")]
        kill_again_and_again(broker, "sink_driver", tmp_path, arguments, FILES * LINES, ROUNDS)
