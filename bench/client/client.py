"""CometMQ's Python client beside the binding of the C++ client (`rocketmq` on PyPI).

Rules kept here:

- Both use a CometMQ broker, each in its own process, and take turns; the one that begins changes.
- Both send the same 128-byte messages with a tag and a key and await each send. Messages to be consumed are
  there before.
- Consumed messages are checked: every message of every queue, once.
- Client and broker share the machine: a figure is the client's only as long as the broker keeps up.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.broker.contest import Contestant, busy_note, cluster
from bench.broker.load import create_topic, fill
from bench.errors import BenchmarkError
from bench.report.figures import Figure, Section, Target
from tests.compat.jvm import PEERS

ROOT = Path(__file__).resolve().parents[2]
SENT, READ = "bench-sent", "bench-read"
IN_FLIGHT = 64
QUEUES = 8
BATCHES = 512
MESSAGES = BATCHES * 32 * QUEUES
WORKER_SECONDS = 180.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure."""

    rounds: int
    seconds: float


FULL = Effort(rounds=5, seconds=3.0)
QUICK = Effort(rounds=1, seconds=1.5)


@dataclass(frozen=True, slots=True)
class Work:
    """One thing that both clients do, or only ours where the peer has no such thing."""

    name: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...] | None
    topic: str
    target: Target


def _works(effort: Effort) -> list[Work]:
    many, one = ("send", str(IN_FLIGHT), str(effort.seconds)), ("send", "1", str(effort.seconds))
    consume = ("consume", str(MESSAGES))
    return [
        Work(f"awaited sends, {IN_FLIGHT} in flight", many, many, SENT, Target(at_least=25_000)),
        Work("awaited sends, one at a time", one, one, SENT, Target(at_least=5_000)),
        Work("consumed, empty listener", consume, consume, READ, Target(at_least=60_000)),
        Work(
            "consumed, empty listener in threads", ("consume-blocking", str(MESSAGES)), None, READ, Target()
        ),
    ]


def run(effort: Effort, say: Say) -> Section:
    """Measure both clients against our broker."""
    about = "128-byte bodies; the peer is the C++ client's binding for Python"
    section = Section("Python client", notes=[about, *busy_note()], peer="C++ binding")
    with (
        tempfile.TemporaryDirectory(prefix="cometmq-bench-") as folder,
        cluster(Path(folder) / "cluster", comet=True) as broker,
    ):
        _set_up(broker)
        works = _works(effort)
        rates = _take_turns(broker, works, Path(folder), effort.rounds, say)
    for work in works:
        ours, theirs = rates[work]
        section.figures.append(Figure(work.name, "a second", ours, theirs, work.target))
    return section


def _set_up(broker: Contestant) -> None:
    for topic in (SENT, READ):
        create_topic(broker.address, broker.namesrv, topic, queues=QUEUES)
    fill(broker.address, READ, BATCHES, queues=QUEUES)


def _take_turns(
    broker: Contestant, works: list[Work], home: Path, rounds: int, say: Say
) -> dict[Work, tuple[list[float], list[float]]]:
    rates: dict[Work, tuple[list[float], list[float]]] = {work: ([], []) for work in works}
    for number in range(rounds):
        for work in works:
            for is_ours in (True, False) if number % 2 == 0 else (False, True):
                args = work.ours if is_ours else work.theirs
                if args is None:
                    continue
                rate = _rate(broker.namesrv_address, work.topic, args, home, is_ours=is_ours)
                rates[work][0 if is_ours else 1].append(rate)
                who = "ours" if is_ours else "peer"
                say(f"round {number + 1} of {rounds}, {work.name}, {who}: {rate:,.0f}/s")
    return rates


def _rate(namesrv: str, topic: str, args: tuple[str, ...], home: Path, *, is_ours: bool) -> float:
    """Run a worker to its end; its messages a second."""
    program = (
        ["-m", "bench.client.worker"] if is_ours else [str(ROOT / "bench" / "client" / "peer_worker.py")]
    )
    environment = {**os.environ, "HOME": str(home)}
    if not is_ours:
        environment["PYTHONPATH"] = str(PEERS / "cpp")
    finished = subprocess.run(
        [sys.executable, *program, namesrv, topic, *args],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WORKER_SECONDS,
        check=False,
    )
    if finished.returncode != 0:
        raise BenchmarkError(f"{' '.join(program)} {' '.join(args)} failed:\n{finished.stderr[-2000:]}")
    told = json.loads(finished.stdout.splitlines()[-1])
    if topic == READ and told["offsets"] != QUEUES * sum(range(MESSAGES // QUEUES)):
        raise BenchmarkError(f"{' '.join(program)} did not get every message once: {told}")
    return float(told["done"]) / float(told["seconds"])
