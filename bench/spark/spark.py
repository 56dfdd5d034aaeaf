"""Spark source and sink of CometMQ beside Spark's own for Kafka.

Rules kept here:
- One Spark session with two threads queries both sides in turns, with the brokers on the same cores. The side
  that begins changes from round to round, and the first round does not count.
- The sinks write what the sources read; every figure is of counted rows.
- Kafka's source always makes all columns. CometMQ's is shown with all columns, and with those that the query
  needs.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final, Literal

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from bench.broker.contest import Say, busy_note, cluster
from bench.broker.memory import memory_in_use
from bench.errors import BenchmarkError
from bench.report.figures import Figure, Section, Target
from bench.spark.floor import floor_stream
from bench.spark.kafka import KafkaServer, spark_jars
from bench.spark.sides import BARE, READ, SUNK, Comet, Kafka, Side, count, look_at_all, rows_of
from bench.spark.watch import WorkerMemory, core_seconds
from cometmq.model.errors import CometError
from cometmq.spark.pipelines.archive.job import ArchiveJob, archive
from cometmq.spark.pipelines.run.session import Place, spark_session
from tests.compat.apache import ServerError

LIVE, LOG = Target(ratio_at_least=1.0), Target(ratio_at_least=2.0)
ARCHIVE, SINK = Target(ratio_at_least=1.2), Target(ratio_at_least=1.0)
MICRO_BATCH, WORKER_MB = Target(ratio_at_most=1.0), Target(below=500)

BATCH_ROWS: Final = 1_000
_KAFKA: Final = "Kafka"
_BATCH_LIMIT_S: Final = 300.0
SETTINGS: Final = {"spark.driver.memory": "2g", "spark.sql.streaming.numRecentProgressUpdates": "1000"}


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to read and write, and how often."""

    rows: int
    rounds: int
    batches: int
    warm_up_batches: int


FULL = Effort(rows=4_000_000, rounds=3, batches=40, warm_up_batches=10)
QUICK = Effort(rows=100_000, rounds=1, batches=8, warm_up_batches=2)

_SINKS_NOTE: Final = (
    "rows are written to topics with no memory free, so that new pages come from the page cache"
)

Run = Callable[[], None]


@dataclass(slots=True)
class Contest:
    """Things that are done in turns, with what they took."""

    name: str
    entries: dict[str, tuple[Run, Target]]
    """What is done, by its name; one of them is Kafka's."""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    cores: dict[str, list[float]] = field(default_factory=dict)

    def take_turns(self, rounds: int, say: Say) -> None:
        for number in range(rounds + 1):
            for name in self.entries if number % 2 else reversed(self.entries):
                seconds, cores = _timed(self.entries[name][0])
                kind = f"round {number} of {rounds}" if number else "warm-up"
                say(f"{self.name}, {name}, {kind}: {seconds:.2f} s, {cores:.2f} core seconds")
                if number:
                    self.seconds.setdefault(name, []).append(seconds)
                    self.cores.setdefault(name, []).append(cores)

    def figures(self, rows: int) -> Iterator[Figure]:
        theirs = [rows / seconds for seconds in self.seconds[_KAFKA]]
        for name, (_, target) in self.entries.items():
            if name != _KAFKA:
                ours = [rows / seconds for seconds in self.seconds[name]]
                yield Figure(f"{self.name}, {name}", "rows a second", ours, theirs, target)

    def note(self, rows: int) -> str:
        costs = (f"{name} {median(cores) / rows * 1e6:.2f}" for name, cores in self.cores.items())
        return f"core seconds a million rows, {self.name}: {', '.join(costs)}"


def _timed(run: Run) -> tuple[float, float]:
    """The seconds that something takes, and the core seconds of all processes."""
    before, begun = core_seconds(), time.perf_counter()
    run()
    seconds = time.perf_counter() - begun
    return seconds, core_seconds() - before


def run(effort: Effort, say: Say) -> Section:
    """Measure both sides and compare them."""
    try:
        return _run(effort, say)
    except (ServerError, CometError, PySparkException, Py4JJavaError) as problem:
        raise BenchmarkError(str(problem).partition("\n\n")[0]) from problem


def _run(effort: Effort, say: Say) -> Section:
    about = f"{effort.rows:,} messages with 128-byte bodies, local[2], the brokers on the same cores"
    section = Section("Spark", notes=[about, *busy_note()], peer="Kafka")
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cometmq-bench-")))
        settings = {**SETTINGS, "spark.jars": spark_jars()}
        kafka = stack.enter_context(KafkaServer(home / "kafka"))
        comet = stack.enter_context(cluster(home / "comet", comet=True))
        spark = stack.enter_context(spark_session(Place("cometmq-bench", "local[2]", settings)))
        memory = stack.enter_context(WorkerMemory())
        contest = _Sides(spark, Comet(spark, comet), Kafka(spark, kafka), home, effort, say)
        contest.fill()
        contests = [contest.counts()]
        if effort is not QUICK:
            contests += [contest.all_columns(), contest.archives()]
        for each in contests:
            each.take_turns(effort.rounds, say)
            section.figures += each.figures(effort.rows)
            section.notes.append(each.note(effort.rows))
        sinks = contest.sinks()
        with nullcontext() if effort is QUICK else memory_in_use(home, say):
            sinks.take_turns(effort.rounds, say)
        section.figures += sinks.figures(effort.rows)
        section.notes.append(sinks.note(effort.rows))
        contest.check_sunk()
        section.figures += contest.micro_batches(section.notes)
    section.figures.append(Figure("Python worker, most resident", "MB", [memory.most_mb], target=WORKER_MB))
    if effort is QUICK:
        section.notes.append(
            "a quick run, without all columns and Parquet: the start and end of a query outweigh its rows, "
            "so ratios say little"
        )
    else:
        section.notes.append(_SINKS_NOTE)
    return section


class _Sides:
    """Everything that is asked of both sides."""

    def __init__(
        self, spark: SparkSession, comet: Comet, kafka: Kafka, home: Path, effort: Effort, say: Say
    ) -> None:
        self._spark = spark
        self._comet = comet
        self._kafka = kafka
        self._home = home
        self._effort = effort
        self._say = say
        self._numbers = iter(range(1_000_000))

    def fill(self) -> None:
        """Write what will be read."""
        for side in (self._comet, self._kafka):
            self._say(f"writing {self._effort.rows:,} messages to {side.name}")
            self._write(side, READ)

    def _write(self, side: Side, topic: str) -> None:
        side.write(rows_of(self._spark, self._effort.rows, side.body), topic)

    def counts(self) -> Contest:
        rows, comet, kafka = self._effort.rows, self._comet, self._kafka
        return Contest(
            "count and length",
            {
                "live source": (lambda: count(comet.read(), "body", rows), LIVE),
                "live source, bodies only": (lambda: count(comet.read_bodies(), "body", rows), Target()),
                "log source": (lambda: count(comet.read_log(), "body", rows), LOG),
                "log source, bodies only": (lambda: count(comet.read_log_bodies(), "body", rows), LOG),
                _KAFKA: (lambda: count(kafka.read(), "value", rows), Target()),
            },
        )

    def all_columns(self) -> Contest:
        comet, kafka = self._comet, self._kafka
        return Contest(
            "all columns",
            {
                "live source": (lambda: look_at_all(comet.read()), LIVE),
                "log source": (lambda: look_at_all(comet.read_log()), Target()),
                _KAFKA: (lambda: look_at_all(kafka.read()), Target()),
            },
        )

    def archives(self) -> Contest:
        comet, kafka = self._comet, self._kafka
        return Contest(
            "to Parquet",
            {
                "archive pipeline": (lambda: self._archive("user"), ARCHIVE),
                "archive pipeline, all properties": (lambda: self._archive("all"), Target()),
                "live source": (lambda: self._to_parquet(comet.read()), Target()),
                _KAFKA: (lambda: self._to_parquet(kafka.read()), Target()),
            },
        )

    def _to_parquet(self, frame: DataFrame) -> None:
        folder = self._new_folder()
        frame.write.parquet(str(folder))
        shutil.rmtree(folder)

    def _archive(self, properties: Literal["user", "all"]) -> None:
        folder = self._new_folder()
        job = ArchiveJob(
            namesrv_addr=self._comet.namesrv, topics=(READ,), output=str(folder), properties=properties
        )
        archived = archive(self._spark, job)
        if archived.rows != self._effort.rows:
            raise BenchmarkError(f"{archived.rows} of {self._effort.rows} messages were archived")
        shutil.rmtree(folder)

    def _new_folder(self) -> Path:
        return self._home / f"output-{next(self._numbers)}"

    def sinks(self) -> Contest:
        return Contest(
            "to a topic",
            {
                "sink": (lambda: self._write(self._comet, SUNK), SINK),
                "sink, no unique keys": (lambda: self._write(self._comet, BARE), Target()),
                _KAFKA: (lambda: self._write(self._kafka, SUNK), Target()),
            },
        )

    def check_sunk(self) -> None:
        """What the sinks wrote, over all rounds."""
        expected = self._effort.rows * (self._effort.rounds + 1)
        comet, kafka = self._comet, self._kafka
        for frame, body in (
            (comet.read(SUNK), comet.body),
            (comet.read(BARE), comet.body),
            (kafka.read(SUNK), kafka.body),
        ):
            count(frame, body, expected)

    def micro_batches(self, notes: list[str]) -> Iterator[Figure]:
        """How long batches of few rows take, from one trigger to the next, and what they spend it on."""
        streams = {
            self._comet.name: self._comet.stream(BATCH_ROWS),
            self._kafka.name: self._kafka.stream(BATCH_ROWS),
            "a Python source that does nothing": floor_stream(self._spark, BATCH_ROWS),
        }
        batches: dict[str, list[dict[str, int]]] = {name: [] for name in streams}
        for number in range(self._effort.rounds + 1):  # the first is for Java to get warm
            for name in streams if number % 2 else reversed(streams):
                taken = self._batches(name, streams[name])
                self._say(f"micro-batches of {name}, turn {number}, ms: {_phases(taken)}")
                batches[name] += taken if number else []
        for name, taken in batches.items():
            notes.append(f"micro-batch of {name}, ms: {_phases(taken)}")
        ours, theirs, nothing = (
            [float(batch["triggerExecution"]) for batch in taken] for taken in batches.values()
        )
        yield Figure(f"micro-batch of {BATCH_ROWS:,} rows", "ms", ours, theirs, MICRO_BATCH)
        yield Figure("the same, a Python source that does nothing", "ms", nothing, theirs)

    def _batches(self, name: str, stream: DataFrame) -> list[dict[str, int]]:
        """What Spark says that each part of a batch took, in milliseconds."""
        effort, folder = self._effort, self._new_folder()
        query = stream.writeStream.format("noop").option("checkpointLocation", str(folder)).start()
        try:
            done: list[dict[str, int]] = []
            deadline = time.monotonic() + _BATCH_LIMIT_S
            while len(done) < effort.warm_up_batches + effort.batches:
                if time.monotonic() > deadline or not query.isActive:
                    raise BenchmarkError(f"{name} made {len(done)} batches: {query.exception()}")
                time.sleep(0.2)
                done = [
                    progress.durationMs
                    for progress in query.recentProgress
                    if progress.numInputRows > BATCH_ROWS // 2  # Kafka's source rounds down in each partition
                ]
        finally:
            query.stop()
            shutil.rmtree(folder, ignore_errors=True)
        return done[effort.warm_up_batches :]


def _phases(batches: Sequence[dict[str, int]]) -> str:
    """What parts of a batch take, in the median."""
    return ", ".join(f"{name} {median(batch.get(name, 0) for batch in batches):.0f}" for name in batches[-1])
