"""Sends beside a consumer that reads cold messages from the disk.

Rules kept here:

- The log is written, flushed and put out of the page cache while no broker has it open, then the broker is
  started again: pages that somebody has mapped cannot be put out.
- Every round reads a part of the log that no round before has read.
- A broker reads its last files when it starts; the log has small files, and those are left out.
- What counts is a broker's 99th percentile with the reader over its own without: the disk is in both.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.broker.contest import Contestant, Load, Say
from bench.broker.load import cold_pull_frames, create_topic, queue_ends, send_frames
from bench.errors import BenchmarkError

MESSAGE_BYTES = 64 * 1024
FILE_BYTES = 64 * 1024 * 1024
SETTINGS = {"mappedFileSizeCommitLog": str(FILE_BYTES)}
FILES_READ_AT_START = 4
FILLING = Load("filling", 2, 4)
SENDING = Load("sends beside a reader", 4, 16)
READING = Load("cold reads", 1, 4)
COLD, HOT = "bench-cold", "bench-hot"


@dataclass(slots=True)
class ColdRun:
    """The 99th percentiles of the rounds, in milliseconds, and how much came from the disk."""

    alone_ms: list[float] = field(default_factory=list)
    beside_ms: list[float] = field(default_factory=list)
    read_mb: float = 0.0

    @property
    def factors(self) -> list[float]:
        return [beside / alone for alone, beside in zip(self.alone_ms, self.beside_ms, strict=True)]


def measure(
    contestant: Contestant, mib: int, rounds: int, seconds: float, warm_up_seconds: float, say: Say
) -> ColdRun:
    """Fill a log, make it cold, and send with and without a reader of it."""
    messages = _fill(contestant, mib)
    broker = contestant.broker
    broker.stop()
    say(f"{contestant.name}: {evict(broker.home / 'store') >> 20} MiB put out of the page cache")
    broker.start()
    broker.wait_registered(contestant.namesrv_address)
    frames = send_frames(HOT)
    contestant.run(SENDING, frames, warm_up_seconds)
    run = ColdRun()
    begun_bytes = _read_bytes(contestant)
    for number in range(rounds):
        run.alone_ms.append(contestant.run(SENDING, frames, seconds).latency_ms.p99)
        part = cold_pull_frames(COLD, number * messages // rounds, messages // rounds)
        run.beside_ms.append(_send_beside_reader(contestant, frames, part, seconds))
        alone, beside = f"{run.alone_ms[-1]:.2f} ms", f"{run.beside_ms[-1]:.2f} ms"
        say(f"{contestant.name}, p99 of sends: {alone}, {beside} with a reader")
    run.read_mb = (_read_bytes(contestant) - begun_bytes) / 1e6
    return run


def _fill(contestant: Contestant, mib: int) -> int:
    """Large messages in one queue until the log has its size; how many of them no start will read."""
    create_topic(contestant.address, contestant.namesrv, COLD, queues=1)
    create_topic(contestant.address, contestant.namesrv, HOT)
    frames = send_frames(COLD, bytes(range(256)) * (MESSAGE_BYTES // 256), queues=1, count=64)
    warm = FILES_READ_AT_START * FILE_BYTES // MESSAGE_BYTES
    wanted = mib * 1024 * 1024 // MESSAGE_BYTES + warm
    while (messages := queue_ends(contestant.address, COLD, queues=1)[0]) < wanted:
        contestant.run(FILLING, frames, 1.0)
    return messages - warm


def evict(folder: Path) -> int:
    """Write a store's files to the disk and put them out of the page cache; how many bytes they have."""
    total = 0
    for file in folder.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDWR)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                total += os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
    return total


def _send_beside_reader(
    contestant: Contestant, frames: Sequence[bytes], part: Sequence[bytes], seconds: float
) -> float:
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(contestant.run, READING, part, seconds)
        p99_ms = contestant.run(SENDING, frames, seconds).latency_ms.p99
        if reading.result().requests == 0:
            raise BenchmarkError(f"{contestant.name} answered no cold read")
    return p99_ms


def _read_bytes(contestant: Contestant) -> int:
    return int(psutil.Process(contestant.broker.pid).io_counters().read_bytes)
