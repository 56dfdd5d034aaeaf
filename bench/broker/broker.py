"""Broker beside Apache's: sends, pulls, synchronous flush, latency through a Java client, cold reads.

Rules kept here:

- Both brokers take turns in one run; see `contest.py`.
- Raw frames measure the broker alone. For latency from end to end, one Java client in one JVM uses both.
- A broker is ready when it answers a request, whatever its log says.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.broker import cold
from bench.broker.contest import (
    HEAP,
    QUICK_NOTE,
    SETTINGS,
    Contestant,
    Effort,
    Load,
    Requests,
    both,
    busy_note,
    cluster,
    contest,
)
from bench.broker.load import BATCH, GET_MAX_OFFSET, GET_ROUTE, create_topic, fill, pull_frames, send_frames
from bench.broker.starts import start_once
from bench.load.frames import json_request
from bench.report.figures import Figure, Section, Target
from tests.compat.apache import (
    ApacheBroker,
    ApacheNamesrv,
    Broker,
    CometBroker,
    CometNamesrv,
    Server,
    free_port,
    run_java,
)

PULLED_BATCHES = 64
SENT, PULLED, PROBED = "bench-sent", "bench-pulled", "bench-probed"

FASTER, AS_FAST = Target(ratio_at_least=1.5), Target(ratio_at_least=1.0)
SENDS = (
    Load("sends", 1, 1, FASTER),
    Load("sends", 1, 8, FASTER),
    Load("sends", 4, 64, AS_FAST),
    Load("sends", 8, 128, AS_FAST),
)
PULLS = (Load("pulls of 32", 4, 1, AS_FAST, BATCH), Load("pulls of 32", 4, 4, AS_FAST, BATCH))
FLUSHED = (Load("flushed sends", 1, 1, AS_FAST), Load("flushed sends", 8, 32, AS_FAST))
P50, P99 = Target(ratio_at_most=0.7), Target(ratio_at_most=1.0)
COLD_FACTOR = Target(below=2)
ANY_QUEUE = json_request(GET_MAX_OFFSET, {"topic": "TBW102", "queueId": "0"})
READY_SECONDS, IDLE_MB = Target(below=1), Target(below=90)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEffort(Effort):
    """How long to measure; a number of 0 leaves its measurement out."""

    starts: int
    probes: int
    cold_mib: int
    """The log of the cold reader."""
    cold_seconds: float = 4.0


FULL = BrokerEffort(
    rounds=5,
    seconds=2.0,
    starts=3,
    jvm_warm_up_seconds=32.0,
    warm_up_seconds=4.0,
    probes=2_000,
    cold_mib=4_096,
)
QUICK = BrokerEffort(
    rounds=1,
    seconds=0.5,
    starts=0,
    jvm_warm_up_seconds=3.0,
    warm_up_seconds=1.0,
    probes=0,
    cold_mib=0,
)


def run(effort: BrokerEffort, say: Say) -> Section:
    """Measure both brokers and compare them."""
    about = "128-byte bodies; connections × requests in flight on each"
    section = Section("Broker", notes=[about, *busy_note()])
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as folder:
        root = Path(folder)
        if effort.starts:
            section.figures += _starts(root / "starts", effort, say)
            section.figures += _broker_starts(root / "broker-starts", effort, say)
        with both(root / "plain") as contestants:
            section.figures += _plain(contestants, effort, say)
            if effort.probes:
                section.figures += _latencies(contestants, root / "probe", effort, say)
            section.notes += [contestant.cpu_note() for contestant in contestants]
        with both(root / "flushed", {"flushDiskType": "SYNC_FLUSH"}) as contestants:
            section.figures += _flushed(contestants, effort, say)
        if effort.cold_mib:
            section.figures += _cold(root / "cold", effort, section.notes, say)
    if effort is QUICK:
        section.notes.append(
            f"{QUICK_NOTE}; it has no starts, no latencies through Java clients and no cold reads"
        )
    return section


def _plain(contestants: Sequence[Contestant], effort: BrokerEffort, say: Say) -> Iterator[Figure]:
    """Sends and pulls of raw frames."""
    for contestant in contestants:
        for topic in (SENT, PULLED):
            create_topic(contestant.address, contestant.namesrv, topic)
        fill(contestant.address, PULLED, PULLED_BATCHES)
    loads: dict[Load, Requests] = dict.fromkeys(SENDS, send_frames(SENT))
    loads |= dict.fromkeys(PULLS, pull_frames(PULLED, PULLED_BATCHES))
    return contest(contestants, loads, effort, say)


def _flushed(contestants: Sequence[Contestant], effort: BrokerEffort, say: Say) -> Iterator[Figure]:
    """Sends that are answered when they are on the disk."""
    for contestant in contestants:
        create_topic(contestant.address, contestant.namesrv, SENT)
    return contest(contestants, dict.fromkeys(FLUSHED, send_frames(SENT)), effort, say)


def _latencies(
    contestants: Sequence[Contestant], home: Path, effort: BrokerEffort, say: Say
) -> Iterator[Figure]:
    """From a Java producer's send to a Java consumer's listener, one message at a time."""
    for contestant in contestants:
        create_topic(contestant.address, contestant.namesrv, PROBED, queues=4)
    say(f"sending {effort.probes} messages one at a time, {effort.rounds} rounds")
    namesrvs = [contestant.namesrv_address for contestant in contestants]
    counts = (str(2 * effort.probes), str(effort.probes), str(effort.rounds))
    printed = run_java("LatencyProbe.java", PROBED, *counts, *namesrvs, home=home, timeout=600)
    rounds = [[int(number) for number in line.split()] for line in printed.splitlines()]
    for name, place, target in (("median", 1, P50), ("99th percentile", 2, P99)):
        theirs, ours = ([one[place] / 1000 for one in rounds if one[0] == side] for side in (0, 1))
        yield Figure(f"send to listener, {name}", "ms", ours, theirs, target)


def _cold(home: Path, effort: BrokerEffort, notes: list[str], say: Say) -> Iterator[Figure]:
    """The 99th percentile of sends beside a reader from the disk, over the same without one."""
    runs: list[cold.ColdRun] = []
    for name, is_ours in (("apache", False), ("comet", True)):
        with cluster(home / name, comet=is_ours, settings=cold.SETTINGS) as contestant:
            warm_up_seconds = effort.warm_up_of(contestant)
            run = cold.measure(
                contestant, effort.cold_mib, effort.rounds, effort.cold_seconds, warm_up_seconds, say
            )
            notes.append(f"cold reads of {contestant.name}: {run.read_mb:,.0f} MB came from the disk")
            runs.append(run)
    theirs, ours = runs
    yield Figure("99th percentile of sends, 4 × 16", "ms", ours.alone_ms, theirs.alone_ms)
    yield Figure("the same beside a cold reader", "ms", ours.beside_ms, theirs.beside_ms)
    yield Figure("times the 99th percentile", "", ours.factors, theirs.factors, COLD_FACTOR)


class Standalone(Server):
    """Our name server and broker in one process, run the way a user runs them."""

    ready_text = "CometMQ is ready"

    def __init__(self, home: Path) -> None:
        super().__init__(home, free_port(-2))
        self.namesrv_port = free_port()

    def configure(self) -> None:
        """All it needs is on its command line."""

    def command(self) -> list[str]:
        ports = ["--namesrv-port", str(self.namesrv_port), "--port", str(self.port)]
        bind = ["--bind", "127.0.0.1"]
        program = [sys.executable, "-m", "cometmq.cli.main", "standalone"]
        return [*program, "--data", str(self.home / "data"), *ports, *bind]


def _starts(home: Path, effort: BrokerEffort, say: Say) -> Iterator[Figure]:
    """A name server and a broker in one process: until both answer, and their memory then."""
    measured = []
    for number in range(effort.starts):
        server = Standalone(home / str(number))
        questions = [
            (("127.0.0.1", server.namesrv_port), json_request(GET_ROUTE, {"topic": "TBW102"})),
            (("127.0.0.1", server.port), ANY_QUEUE),
        ]
        measured.append(start_once(server, questions))
        say(f"standalone ready in {measured[-1][0]:.2f} s, {measured[-1][1]:.0f} MB")
    seconds, megabytes = zip(*measured, strict=True)
    yield Figure("standalone, start to ready", "s", seconds, target=READY_SECONDS)
    yield Figure("standalone, resident when idle", "MB", megabytes, target=IDLE_MB)


def _broker_starts(home: Path, effort: BrokerEffort, say: Say) -> Iterator[Figure]:
    """A broker alone, its name server being there: until it answers, and its memory then."""
    apache: list[tuple[float, float]] = []
    comet: list[tuple[float, float]] = []
    with ApacheNamesrv(home / "apache") as theirs, CometNamesrv(home / "comet") as ours:
        for number in range(effort.starts):
            brokers: list[tuple[Broker, list[tuple[float, float]]]] = [
                (ApacheBroker(home / f"a{number}", theirs.address, settings=SETTINGS, heap=HEAP), apache),
                (CometBroker(home / f"c{number}", ours.address, settings=SETTINGS), comet),
            ]
            for broker, measured in brokers:
                measured.append(start_once(broker, [(("127.0.0.1", broker.port), ANY_QUEUE)]))
                say(f"{type(broker).__name__} ready in {measured[-1][0]:.2f} s, {measured[-1][1]:.0f} MB")
    for place, name, unit in ((0, "broker, start to ready", "s"), (1, "broker, resident when idle", "MB")):
        yield Figure(name, unit, [one[place] for one in comet], [one[place] for one in apache])
