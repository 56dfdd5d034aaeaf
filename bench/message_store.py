"""Message store on one core: puts with queue entry and index, reads, recovery, memory.

Rules kept here:

- Every round has its own directory on a real disk, with files of the default sizes and asynchronous flush, as
  in a broker.
- Messages have the properties that clients set, where these matter: every client sets a unique key.
- Results are checked: every put is accepted, every message comes back, every wait succeeds.
- The best round counts for rates on one core: slower ones were disturbed by other processes. If something
  waits for the disk, all rounds count.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchmarkError
from bench.report.figures import Figure, Section, Target
from cometmq.model.message import Host
from cometmq.ports.clock import SystemClock
from cometmq.ports.disk import SystemDisk
from cometmq.remoting.loop import run as run_loop
from cometmq.store.config import StoreConfig
from cometmq.store.log.batch import MessageBatch
from cometmq.store.message_store import MessageStore
from cometmq.store.read.reader import GetStatus, MessageReader
from cometmq.store.status import PutStatus
from cometmq.wire.record.batch import BatchItem, encode_batch
from cometmq.wire.record.codec import Record
from cometmq.wire.record.ids import pack_host

Say = Callable[[str], None]
TOPIC = "orders-of-region-0001"
QUEUES = 8
BATCH = 32
HOST = pack_host(Host("127.0.0.1", 10911))
BODY = bytes(range(128))
LARGE_BODY = BODY * 8
GIB = 2**30
SENDERS = 64

TAGGED = b"TAGS\x01TagA\x02"
SIMPLE = b"UNIQ_KEY\x017F0000010001%020X\x02TAGS\x01TagA\x02WAIT\x01true\x02"
USUAL = (
    b"KEYS\x01order-%08d\x02UNIQ_KEY\x017F0000010001%020X\x02CLUSTER\x01DefaultCluster\x02"
    b"MSG_REGION\x01DefaultRegion\x02TAGS\x01TagA\x02TRACE_ON\x01true\x02WAIT\x01true\x02"
)
"""What a message of a Java client has when it arrives at a broker."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to put, how often, and how large a store to recover."""

    messages: int
    rounds: int
    recovery_gib: float
    commit_seconds: float
    memory_gib: float
    """The log that is written before memory is measured."""


FULL = Effort(messages=320_000, rounds=3, recovery_gib=4, commit_seconds=2, memory_gib=1)
QUICK = Effort(messages=64_000, rounds=1, recovery_gib=0.0625, commit_seconds=0.5, memory_gib=0.125)


def run(effort: Effort, say: Say) -> Section:
    """Time every step."""
    section = Section("Message store", notes=["one core, in-process, default file sizes, asynchronous flush"])
    figures = section.figures
    measures: list[tuple[str, str, Callable[[MessageStore, Effort], float], Target]] = [
        ("put without keys, 128-byte bodies", "a second", _put_plain, Target(at_least=250_000)),
        ("put with one key, 128-byte bodies", "a second", _put_keyed, Target(at_least=150_000)),
        ("put with unique key and tags", "a second", _put_simple, Target(at_least=200_000)),
        ("put with all that a Java client sets", "a second", _put_usual, Target()),
        (f"put in batches of {BATCH}", "messages a second", _put_batches, Target(at_least=600_000)),
        (f"put in batches of {BATCH}, tags", "messages a second", _put_tagged, Target(at_least=600_000)),
        (f"put in batches of {BATCH}, unique keys", "messages a second", _put_simple_batches, Target()),
        ("put 1 KiB bodies", "MB a second", _put_large, Target(at_least=200)),
        (f"read {BATCH} messages a call, hot", "messages a second", _read, Target(at_least=1_000_000)),
    ]
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as folder:
        for name, unit, measure, target in measures:
            rates = [
                run_loop(_in_new_store(Path(folder) / "store", measure, effort)) for _ in range(effort.rounds)
            ]
            say(f"{name}: {max(rates):,.0f} {unit} (rounds: {', '.join(f'{rate:,.0f}' for rate in rates)})")
            figures.append(Figure(name, unit, [max(rates)], target=target))
        figures += _group_commit(Path(folder) / "commits", effort, say)
        for kind in ("plain", "keyed"):
            seconds = _recovery(Path(folder) / "killed", effort.recovery_gib, kind)
            name = f"recovery of {effort.recovery_gib:g} GiB after a kill, {kind} messages"
            say(f"{name}: {seconds:.1f} s")
            figures.append(Figure(name, "s", [seconds], target=Target(below=10)))
        for name, task, target in (
            (f"private memory, {effort.memory_gib:g} GiB of log written", "log", Target(below=100)),
            ("resident, 10,000 queues open", "queues", Target(below=200)),
        ):
            megabytes = _memory(Path(folder) / task, task, effort.memory_gib)
            say(f"{name}: {megabytes:.0f} MB")
            figures.append(Figure(name, "MB", [megabytes], target=target))
    return section


def _config(folder: Path) -> StoreConfig:
    return StoreConfig(store_path_root_dir=str(folder))


async def _in_new_store(
    folder: Path, measure: Callable[[MessageStore, Effort], float], effort: Effort
) -> float:
    store = MessageStore(SystemDisk(), SystemClock(), _config(folder), HOST)
    await store.start()
    await asyncio.sleep(0.3)  # the files of the log are made beside
    try:
        return measure(store, effort)
    finally:
        await store.stop()
        shutil.rmtree(folder)


def _message(number: int, body: bytes, properties: bytes = b"") -> Record:
    return Record(TOPIC, body, properties, queue_id=number % QUEUES, born_host=HOST)


def _put(store: MessageStore, records: list[Record]) -> float:
    """The seconds that putting them takes."""
    put, accepted = store.put, PutStatus.PUT_OK
    begun = time.perf_counter()
    refused = [record for record in records if put(record).status is not accepted]
    taken = time.perf_counter() - begun
    if refused:
        raise BenchmarkError(f"{len(refused)} of {len(records)} messages were refused")
    return taken


def _put_plain(store: MessageStore, effort: Effort) -> float:
    return effort.messages / _put(store, [_message(number, BODY) for number in range(effort.messages)])


def _put_keyed(store: MessageStore, effort: Effort) -> float:
    records = [_message(n, BODY, b"KEYS\x01order-%010d\x02" % n) for n in range(effort.messages)]
    return effort.messages / _put(store, records)


def _put_simple(store: MessageStore, effort: Effort) -> float:
    return effort.messages / _put(store, [_message(n, BODY, SIMPLE % n) for n in range(effort.messages)])


def _put_usual(store: MessageStore, effort: Effort) -> float:
    return effort.messages / _put(store, [_message(n, BODY, USUAL % (n, n)) for n in range(effort.messages)])


def _put_large(store: MessageStore, effort: Effort) -> float:
    count = effort.messages // 2
    return (
        count * len(LARGE_BODY) / 1e6 / _put(store, [_message(number, LARGE_BODY) for number in range(count)])
    )


def _put_batches(store: MessageStore, effort: Effort) -> float:
    return _batch_rate(store, effort, lambda _: b"")


def _put_tagged(store: MessageStore, effort: Effort) -> float:
    return _batch_rate(store, effort, lambda _: TAGGED)


def _put_simple_batches(store: MessageStore, effort: Effort) -> float:
    return _batch_rate(store, effort, lambda number: SIMPLE % number)


def _batch_rate(store: MessageStore, effort: Effort, properties: Callable[[int], bytes]) -> float:
    batches = []
    for number in range(0, effort.messages, BATCH):
        items = [BatchItem(BODY, properties(number + each)) for each in range(BATCH)]
        batches.append(MessageBatch(_message(number // BATCH, b""), items, len(encode_batch(items))))
    begun = time.perf_counter()
    accepted = sum(store.put_batch(batch).status is PutStatus.PUT_OK for batch in batches)
    taken = time.perf_counter() - begun
    if accepted != len(batches):
        raise BenchmarkError(f"{len(batches) - accepted} of {len(batches)} batches were refused")
    return effort.messages / taken


def _group_commit(folder: Path, effort: Effort, say: Say) -> list[Figure]:
    """How many messages a second are on the disk, and can be consumed, when their senders go on."""
    rates: dict[int, list[float]] = {1: [], SENDERS: []}
    for _ in range(effort.rounds):
        for senders, measured in rates.items():
            measured.append(run_loop(_commit_rate(folder, senders, effort.commit_seconds)))
            say(f"synchronous flush, {senders} senders: {measured[-1]:,.0f}/s")
    gains = [many / one for one, many in zip(rates[1], rates[SENDERS], strict=True)]
    return [
        Figure("synchronous flush, 1 sender", "a second", rates[1]),
        Figure(f"synchronous flush, {SENDERS} senders", "a second", rates[SENDERS]),
        Figure(f"gain of {SENDERS} senders over one", "times", gains, target=Target(at_least=20)),
    ]


async def _commit_rate(folder: Path, senders: int, seconds: float) -> float:
    config = StoreConfig(store_path_root_dir=str(folder), flush_disk_type="SYNC_FLUSH")
    store = MessageStore(SystemDisk(), SystemClock(), config, HOST)
    await store.start()
    await asyncio.sleep(0.3)  # the files of the log are made beside
    records = iter([_message(number, BODY, SIMPLE % number) for number in range(round(200_000 * seconds))])
    begun = time.perf_counter()
    end = begun + seconds

    async def send() -> int:
        sent = 0
        while time.perf_counter() < end:
            end_offset = store.put(next(records)).end_offset
            if await store.flusher.wait_flushed(end_offset) is not PutStatus.PUT_OK:
                raise BenchmarkError("a message was not flushed")
            sent += 1
        return sent

    sent = sum(await asyncio.gather(*(send() for _ in range(senders))))
    rate = sent / (time.perf_counter() - begun)
    queued = sum(queue.max_offset for queue in store.queues.of_topic(TOPIC))
    await store.stop()
    shutil.rmtree(folder)
    if queued != sent:
        raise BenchmarkError(f"{sent} messages were sent, and {queued} can be consumed")
    return rate


def _read(store: MessageStore, effort: Effort) -> float:
    _put(store, [_message(number, BODY) for number in range(effort.messages)])
    reader = store.reader
    begun = time.perf_counter()
    read = sum(_read_queue(reader, queue_id) for queue_id in range(QUEUES))
    taken = time.perf_counter() - begun
    if read != effort.messages:
        raise BenchmarkError(f"{read} of {effort.messages} messages came back")
    return read / taken


def _read_queue(reader: MessageReader, queue_id: int) -> int:
    offset = read = 0
    while (got := reader.get(TOPIC, queue_id, offset, BATCH)).status is GetStatus.FOUND:
        read += len(got.records)
        offset = got.next_offset
    return read


def _recovery(folder: Path, gib: float, kind: str) -> float:
    """How long a store that another process left behind by dying takes to open.

    The messages of its last file, which is what a recovery looks at, are small.
    """
    subprocess.run([sys.executable, "-m", "bench.message_store", str(folder), kind, str(gib)], check=True)

    async def recover() -> float:
        store = MessageStore(SystemDisk(), SystemClock(), _config(folder), HOST)
        begun = time.perf_counter()
        await store.start()
        taken = time.perf_counter() - begun
        if store.log.max_offset < gib * GIB:
            raise BenchmarkError(f"{store.log.max_offset} bytes of {gib:g} GiB were recovered")
        await store.stop()
        return taken

    try:
        return run_loop(recover())
    finally:
        shutil.rmtree(folder)


async def _fill_and_die(folder: Path, kind: str, gib: float) -> None:
    store = MessageStore(SystemDisk(), SystemClock(), _config(folder), HOST)
    await store.start()
    number = 0
    while store.log.max_offset < gib * GIB:
        is_small = store.log.max_offset >= (gib - 1) * GIB
        for _ in range(1_000):
            properties = SIMPLE % number if kind == "keyed" else b""
            result = store.put(_message(number, BODY if is_small else LARGE_BODY, properties))
            if result.status is not PutStatus.PUT_OK:
                await asyncio.sleep(0.01)  # the next file is not ready yet
            number += 1
        await asyncio.sleep(0)  # lets the flusher work, as the requests of clients do
    os._exit(0)  # no flush, no checkpoint, no farewell


def _memory(folder: Path, task: str, gib: float) -> float:
    """The megabytes that another process has when it has done a task."""
    command = [sys.executable, "-m", "bench.message_store", str(folder), task, str(gib)]
    try:
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    finally:
        shutil.rmtree(folder)


async def _do_and_tell_memory(folder: Path, task: str, gib: float) -> None:
    store = MessageStore(SystemDisk(), SystemClock(), _config(folder), HOST)
    await store.start()
    if task == "log":
        while store.log.max_offset < gib * GIB - 2**20:
            store.put(_message(0, LARGE_BODY))
            await asyncio.sleep(0)
    else:
        for number in range(10_000):
            if store.put(Record(f"topic-{number}", BODY, born_host=HOST)).status is not PutStatus.PUT_OK:
                raise BenchmarkError(f"the queue of topic {number} could not be opened")
    print(_own_megabytes("RssAnon:" if task == "log" else "VmRSS:"))
    await store.stop()


def _own_megabytes(name: str) -> float:
    """What the kernel says under a name about the memory of this process."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) / 1000 for line in status.splitlines() if line.startswith(name))


if __name__ == "__main__":
    work = _do_and_tell_memory if sys.argv[2] in ("log", "queues") else _fill_and_die
    run_loop(work(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
