"""Rebuild of the consume queues and the index of a store from its log, on Spark workers.

Rules kept here:
- The result is byte for byte that of `cometmq store rebuild`: new files are made beside the old ones and
  replace them when all are complete; a damaged log is refused.
- Ranges of the log are decoded in parallel, then queues and then index files are written in parallel. The
  number of entries per range decides which entries an index file gets.
- An interrupted rebuild continues with the remaining ranges; its results are in `WORK_FOLDER`.
- Every worker needs the store under the same path. Tasks must not run twice at a time, so speculation has to
  be off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from cometmq.model.errors import StoreError
from cometmq.ports.disk import SystemDisk
from cometmq.ports.folders import SystemFolders
from cometmq.ports.names import child
from cometmq.spark.log.chunks import LogFile
from cometmq.spark.log.store import LogStore, StoreState, look_at
from cometmq.spark.rebuild.dispatch import DispatchRules, Queue
from cometmq.spark.rebuild.tasks import (
    IndexTask,
    Part,
    QueueTask,
    RangeDone,
    RangeTask,
    decode_range,
    write_index_file,
    write_queues,
)
from cometmq.store.config import StoreConfig
from cometmq.store.index.file import DEFAULT_ENTRIES, DEFAULT_SLOTS, IndexLayout
from cometmq.store.index.index import index_name
from cometmq.store.tools.findings import first_set_byte
from cometmq.store.tools.rebuild import NEW, Progress, Rebuilt, exchange, keep_ends, seen_delays
from cometmq.store.tools.survey import INDEX_FOLDER, LOCK, QUEUE_FOLDER, Survey, open_log, survey_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

RANGE_BYTES: Final = 64 * 1024 * 1024
"""Log bytes per task."""
WORK_FOLDER: Final = "rebuild.work"
"""The results of ranges."""
_QUEUE_TASKS: Final = 64
"""The approximate number of tasks that write queues."""


def rebuild(
    spark: SparkSession,
    directory: Path | str,
    config: StoreConfig | None = None,
    *,
    progress: Progress | None = None,
    range_bytes: int = RANGE_BYTES,
) -> Rebuilt:
    """Rebuild the queues and the index of a store, which nobody else may use meanwhile."""
    if spark.conf.get("spark.speculation", "false") == "true":
        raise StoreError("spark.speculation is on, and two tasks would write one file; set it to false")
    root, disk, folders = Path(directory).absolute(), SystemDisk(), SystemFolders()
    survey_store(disk, root, config)  # first, so that only a store gets a lock file
    lock = disk.lock(root / LOCK)
    if lock is None:
        raise StoreError(f"{root / LOCK} is held by another process: stop the broker of this store first")
    unfinished = [root / name for name in (QUEUE_FOLDER + NEW, INDEX_FOLDER + NEW)]
    try:
        for folder in unfinished:  # of an unfinished rebuild
            folders.remove_tree(folder)
        rebuilt = _Rebuild(spark, look_at(root, config, is_alone=True), config, range_bytes).run(
            progress or (lambda done, total: None)
        )
        for name in (QUEUE_FOLDER, INDEX_FOLDER):
            exchange(disk, folders, root, name)
        folders.remove_tree(root / WORK_FOLDER)
        return rebuilt
    except StoreError:  # permanent; after other errors the next rebuild continues
        folders.remove_tree(root / WORK_FOLDER)
        raise
    finally:
        for folder in unfinished:
            folders.remove_tree(folder)
        lock.release()


class _Rebuild:
    """Makes new queues and a new index beside the old ones."""

    def __init__(
        self, spark: SparkSession, store: LogStore, config: StoreConfig | None, range_bytes: int
    ) -> None:
        self._spark = spark
        self._store = store
        self._range_bytes = range_bytes
        survey = store.survey
        settings = config or StoreConfig(store_path_root_dir=str(survey.root))
        self._file_size = survey.queue_file_size or settings.consume_queue_file_size
        self._shape = survey.index_layout or IndexLayout(DEFAULT_SLOTS, DEFAULT_ENTRIES)
        self._queue_folder = survey.root / (QUEUE_FOLDER + NEW)
        self._index_folder = survey.root / (INDEX_FOLDER + NEW)
        self._work = survey.root / WORK_FOLDER
        self._rules = _rules_of(survey, settings, config)

    def run(self, progress: Progress) -> Rebuilt:
        _refuse_damage(self._store)
        tasks = self._range_tasks()
        total = 3 * len(tasks)
        rules = self._rules
        ranges = self._done(tasks, lambda task: decode_range(task, rules))
        progress(len(tasks), total)
        queues = _parts_by_queue(ranges)
        self._done(_grouped(self._queue_tasks(queues)), write_queues)
        progress(2 * len(tasks), total)
        self._done(self._index_tasks(ranges), write_index_file)
        disk, survey = SystemDisk(), self._store.survey
        kept = keep_ends(disk, survey, self._queue_folder, self._file_size, queues)
        if disk.entries(self._index_folder):
            disk.sync_folder(self._index_folder)
        progress(total, total)
        return Rebuilt(
            root=str(survey.root),
            messages=sum(done.messages for done in ranges),
            queues=len(queues) + kept,
            indexed=sum(done.indexed for done in ranges),
            left_out_topics=sorted({topic for done in ranges for topic in done.left_out}),
        )

    def _range_tasks(self) -> list[RangeTask]:
        tasks: list[RangeTask] = []
        for file in self._store.files:
            for start in range(file.start, file.limit, self._range_bytes):
                stop = min(start + self._range_bytes, file.limit)
                mark = _mark(file, start, stop, self._rules)
                tasks.append(RangeTask(len(tasks), file, start, stop, str(self._work), mark))
        return tasks

    def _queue_tasks(self, queues: dict[Queue, list[Part]]) -> list[QueueTask]:
        folder = self._queue_folder
        return [
            QueueTask(str(child(folder, topic, str(queue_id))), self._file_size, str(self._work), parts)
            for (topic, queue_id), parts in queues.items()
        ]

    def _index_tasks(self, ranges: Sequence[RangeDone]) -> list[IndexTask]:
        """A task for each index file, whose entry 0 is never used."""
        now = datetime.now()
        tasks: list[IndexTask] = []
        previous: Part | None = None
        for parts in _divided(ranges, self._shape.entries - 1):
            name = index_name(now + timedelta(milliseconds=len(tasks)))
            tasks.append(
                IndexTask(str(self._index_folder / name), self._shape, str(self._work), parts, previous)
            )
            last = parts[-1]
            previous = Part(last.number, last.first + last.count - 1, 1)
        return tasks

    def _done(self, tasks: Sequence[T], work: Callable[[T], R]) -> list[R]:
        """Run tasks on workers. Returns the results in order."""
        if not tasks:
            return []
        return self._spark.sparkContext.parallelize(tasks, len(tasks)).map(work).collect()


def _mark(file: LogFile, start: int, stop: int, rules: DispatchRules) -> str:
    """A hash of what the result of a range depends on: range, rules and time of the last write."""
    written_at = Path(file.path).stat().st_mtime_ns
    delays = sorted(rules.delays_ms.items())
    depends_on = file, start, stop, written_at, msgspec.structs.replace(rules, delays_ms={}), delays
    return sha256(msgspec.json.encode(depends_on, order="deterministic")).hexdigest()


def _rules_of(survey: Survey, settings: StoreConfig, config: StoreConfig | None) -> DispatchRules:
    delays: dict[int, int] = {}
    if config is None:
        disk = SystemDisk()
        log = open_log(disk, survey)
        delays = seen_delays(disk, survey, log)
        log.files.close()
    return DispatchRules(
        known_topics=survey.known_topics,
        old_topics=frozenset(found.topic for found in survey.queues),
        batch_topics=survey.batch_topics,
        delays_ms=delays,
        delay_levels=settings.message_delay_level,
        has_index=config is None or config.message_index_enable,
    )


def _refuse_damage(store: LogStore) -> None:
    """Refuse a log with gaps, or with data after its end."""
    disk = SystemDisk()
    log = open_log(disk, store.survey)
    try:
        for begin, end in log.files.gaps():
            raise StoreError(
                f"the log has no bytes from {begin} to {end}; bring back the files that are missing"
            )
        mapped = log.files.at(store.end)
        if store.state is StoreState.STOPPED and mapped is not None:
            rest = first_set_byte(mapped.buffer, store.end - mapped.start, mapped.size)
            if rest is not None:
                raise StoreError(
                    f"{mapped.file.path} is damaged at {store.end} of the log, and goes on after it"
                )
    finally:
        log.files.close()


def _parts_by_queue(ranges: Sequence[RangeDone]) -> dict[Queue, list[Part]]:
    """The parts of each queue, in log order."""
    queues: dict[Queue, list[Part]] = {}
    for done in ranges:
        first = 0
        for found in done.queues:
            part = Part(done.number, first, found.count)
            queues.setdefault((found.topic, found.queue_id), []).append(part)
            first += found.count
    return queues


def _grouped(tasks: Sequence[QueueTask]) -> list[list[QueueTask]]:
    """Groups of tasks of similar size."""
    sizes = [sum(part.count for part in task.parts) for task in tasks]
    most = max(sum(sizes) // _QUEUE_TASKS, 1)
    groups: list[list[QueueTask]] = []
    room = 0
    for task, size in zip(tasks, sizes, strict=True):
        if room <= 0:
            groups.append([])
            room = most
        groups[-1].append(task)
        room -= size
    return groups


def _divided(ranges: Sequence[RangeDone], most: int) -> Iterator[list[Part]]:
    """The entries of all ranges, in lists of `most`."""
    parts: list[Part] = []
    room = most
    for done in ranges:
        first = 0
        while first < done.entries:
            count = min(done.entries - first, room)
            parts.append(Part(done.number, first, count))
            first += count
            room -= count
            if not room:
                yield parts
                parts, room = [], most
    if parts:
        yield parts
