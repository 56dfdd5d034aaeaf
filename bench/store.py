"""Commit log on one core: appends, reads, group commit, and the delay that a flush causes on the event loop.

Rules kept here:

- The log is on a real disk, in files that are created and mapped like a broker's. Its pages are in memory
  before a rate is measured.
- Messages are those of the codec benchmark: 128-byte bodies with the properties that a Java client sets.
- Results are checked: the number of messages, or the answer to each wait.
- The best of several repeats counts if nothing waits for the disk; otherwise all rounds do.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.errors import BenchmarkError
from bench.report.figures import Figure, Section, Target
from cometmq.model.message import Host
from cometmq.ports.clock import SystemClock
from cometmq.ports.disk import SystemDisk
from cometmq.remoting.loop import run as run_loop
from cometmq.store.config import StoreConfig
from cometmq.store.log.batch import MessageBatch
from cometmq.store.log.commit_log import CommitLog, open_commit_log
from cometmq.store.log.flush import Flusher
from cometmq.store.status import PutStatus
from cometmq.wire.record.batch import BatchItem, decode_batch, encode_batch
from cometmq.wire.record.codec import Record
from cometmq.wire.record.ids import pack_host

COUNT = 9_600
BATCH = 32
SENDERS = 64
MIB = 1024 * 1024
BODY = bytes(range(128))
PROPERTIES = b"UNIQ_KEY\x010A0000010000000000000000000000021CFA5FFD2B2749DAFBF60000\x02WAIT\x01true\x02"
HOST = pack_host(Host("127.0.0.1", 10911))
STALL_MS = Target(below=20)
WARM_UP_BYTES = 8 * MIB

Flush = Literal["ASYNC_FLUSH", "SYNC_FLUSH"]
Say = Callable[[str], None]
Step = Callable[[], int]
"""Does the same work each time and says how many messages that was."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure, and how much to flush."""

    seconds_per_step: float
    commit_seconds: float
    rounds: int
    dirty_mib: int


FULL = Effort(seconds_per_step=2.0, commit_seconds=2.0, rounds=3, dirty_mib=1024)
QUICK = Effort(seconds_per_step=0.5, commit_seconds=0.5, rounds=1, dirty_mib=256)


def run(effort: Effort, say: Say) -> Section:
    """Time every step."""
    section = Section("Commit log", notes=["one core, in-process; 128-byte bodies with two properties"])
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as folder:
        with _log(Path(folder) / "rates", 64 * MIB) as log:
            for name, step in _steps(log).items():
                rate = _best_rate(name, step, effort.seconds_per_step)
                say(f"{name}: {rate:,.0f}/s")
                section.figures.append(Figure(name, "a second", [rate]))
        section.figures += _group_commit(Path(folder) / "commits", effort, say)
        section.figures += _stalls(Path(folder) / "stalls", effort, say)
    section.notes.append(
        "stalls while appending were page faults, which a worker takes on itself beforehand; what is left "
        "are turns in which the machine gave the processor to somebody else"
    )
    return section


@contextmanager
def _log(root: Path, file_size: int, flush_disk_type: Flush = "SYNC_FLUSH") -> Iterator[CommitLog]:
    config = StoreConfig(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=file_size,
        flush_disk_type=flush_disk_type,
        flush_interval_commit_log=3_600_000,
    )
    with ThreadPoolExecutor(1) as executor:
        log = open_commit_log(SystemDisk(), SystemClock(), executor, config, HOST)
        log.load()
        log.prepare_to_append()
        try:
            yield log
        finally:
            log.close()


def _message(number: int) -> Record:
    return Record(
        topic="orders-of-region-0001",
        body=BODY,
        properties_block=PROPERTIES,
        queue_id=3,
        queue_offset=number,
        born_timestamp_ms=1794730288118,
        born_host=HOST,
    )


def _best_rate(name: str, step: Step, seconds: float) -> float:
    done = step()
    if done != COUNT:
        raise BenchmarkError(f"{name}: {done} of {COUNT} came through")
    best = 0.0
    end = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        done = step()
        best = max(best, done / (time.perf_counter() - begun))
    return best


def _steps(log: CommitLog) -> dict[str, Step]:
    return {
        "append messages": _appending(log),
        f"append batches of {BATCH}, decoded": _appending_batches(log, decoding=False),
        f"decode and append batches of {BATCH}": _appending_batches(log, decoding=True),
        f"read {BATCH} messages at a time": _reading(log),
        "walk and check records": _walking(log),
    }


def _appending(log: CommitLog) -> Step:
    def step() -> int:
        log.truncate(0)
        stored = 0
        for number in range(COUNT):
            stored += log.append(_message(number)) is PutStatus.PUT_OK
        return stored

    return step


def _appending_batches(log: CommitLog, *, decoding: bool) -> Step:
    body = encode_batch(BatchItem(BODY, PROPERTIES) for _ in range(BATCH))
    decoded = decode_batch(body)

    def step() -> int:
        log.truncate(0)
        stored = 0
        for number in range(0, COUNT, BATCH):
            head = Record("orders-of-region-0001", b"", queue_id=3, queue_offset=number, born_host=HOST)
            items = decode_batch(body) if decoding else decoded
            batch = MessageBatch(head, items, len(body))
            if log.append_batch(batch) is PutStatus.PUT_OK:
                stored += len(batch.sizes)
        return stored

    return step


def _reading(log: CommitLog) -> Step:
    _appending(log)()
    places = [(record.physical_offset, record.total_size) for record in log.walk(0, log.max_offset)]
    pulls = [places[start : start + BATCH] for start in range(0, COUNT, BATCH)]

    def step() -> int:
        read = 0
        for pull in pulls:
            read += sum(view is not None for view in [log.view(offset, size) for offset, size in pull])
        return read

    return step


def _walking(log: CommitLog) -> Step:
    return lambda: sum(1 for _ in log.walk(0, log.max_offset, check_crc=True))


def _group_commit(root: Path, effort: Effort, say: Say) -> list[Figure]:
    """How many messages a second are on the disk when they are answered."""
    with _log(root, 64 * MIB) as log, ThreadPoolExecutor(1) as executor:
        rates: dict[int, list[float]] = {1: [], SENDERS: []}
        for _ in range(effort.rounds):
            for senders, measured in rates.items():
                measured.append(run_loop(_commit_rate(log, executor, senders, effort.commit_seconds)))
                say(f"synchronous flush, {senders} senders: {measured[-1]:,.0f}/s")
    gains = [many / one for one, many in zip(rates[1], rates[SENDERS], strict=True)]
    return [
        Figure("synchronous flush, 1 sender", "a second", rates[1]),
        Figure(f"synchronous flush, {SENDERS} senders", "a second", rates[SENDERS]),
        Figure(f"gain of {SENDERS} senders over one", "times", gains, target=Target(at_least=20)),
    ]


async def _commit_rate(log: CommitLog, executor: ThreadPoolExecutor, senders: int, seconds: float) -> float:
    flusher = Flusher(log, executor, StoreConfig(flush_disk_type="SYNC_FLUSH"))
    flusher.start()
    end = time.perf_counter() + seconds

    async def send() -> int:
        sent = 0
        while time.perf_counter() < end:
            log.append(_message(sent))
            if await flusher.wait_flushed(log.max_offset) is not PutStatus.PUT_OK:
                raise BenchmarkError("a message was not flushed")
            sent += 1
        return sent

    begun = time.perf_counter()
    sent = sum(await asyncio.gather(*(send() for _ in range(senders))))
    rate = sent / (time.perf_counter() - begun)
    await flusher.stop()
    return rate


def _stalls(root: Path, effort: Effort, say: Say) -> Iterator[Figure]:
    """How long the event loop stands still at most while much is flushed behind its back."""
    for name, turn_appends in (("idle", 0), ("appending", 8)):
        stalls = []
        for number in range(effort.rounds):
            with (
                _log(root / f"{name}-{number}", (effort.dirty_mib + 512) * MIB, "ASYNC_FLUSH") as log,
                ThreadPoolExecutor(1) as executor,
            ):
                _dirty(log, effort.dirty_mib)
                stalls.append(run_loop(_longest_stall_ms(log, executor, turn_appends)))
                say(f"longest stall of the loop, {name}: {stalls[-1]:.1f} ms")
        yield Figure(
            f"longest stall while {effort.dirty_mib} MiB are flushed, {name}", "ms", stalls, target=STALL_MS
        )


def _dirty(log: CommitLog, mib: int) -> None:
    noise = BODY * (MIB // len(BODY))
    for _ in range(mib):
        if log.append_data(noise) is not PutStatus.PUT_OK:
            raise BenchmarkError("the log could not be filled")


async def _longest_stall_ms(log: CommitLog, executor: ThreadPoolExecutor, turn_appends: int) -> float:
    flusher = Flusher(log, executor, StoreConfig(flush_disk_type="SYNC_FLUSH", sync_flush_timeout=600_000))
    flusher.start()

    async def turn() -> None:
        for number in range(turn_appends):
            log.append(_message(number))
        await asyncio.sleep(0)

    begun_at = log.max_offset
    while turn_appends and log.max_offset < begun_at + WARM_UP_BYTES:
        await turn()  # who appends all the time has done so before, too
    flushed = flusher.wait_flushed(log.max_offset)
    longest, last = 0.0, time.perf_counter()
    while not flushed.done():
        await turn()
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    if flushed.result() is not PutStatus.PUT_OK:
        raise BenchmarkError("the log was not flushed")
    await flusher.stop()
    return longest * 1000
