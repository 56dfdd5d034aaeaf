"""Rebuilding queues and index from the log.

Rules kept here:
- New files are made beside the old ones and synced. They replace the old ones when all are complete; until
  then nothing is touched.
- If the machine stops during the exchange, a folder may be missing; the next start of a broker makes it anew.
- A log that is damaged in the middle, or whose queues have gaps, is refused: messages would be lost unseen.
- A queue whose messages are all expired keeps its end, because its next message continues from there.
- Topics that the broker does not know stay without queues.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from cometmq.model.errors import StoreError
from cometmq.model.names import DELAY_TOPIC
from cometmq.ports.clock import Clock
from cometmq.ports.disk import Disk
from cometmq.ports.folders import Folders
from cometmq.ports.names import child, is_file_name
from cometmq.store.config import StoreConfig
from cometmq.store.dispatch_rules import (
    DelayLevels,
    QueuePosition,
    delay_level,
    further_positions,
    index_keys,
    is_indexed,
    is_queued,
    unit_code,
)
from cometmq.store.index.file import DEFAULT_ENTRIES, DEFAULT_SLOTS, IndexLayout
from cometmq.store.index.index import Index
from cometmq.store.log.reader import LogReader
from cometmq.store.queue.consume_queue import ConsumeQueue
from cometmq.store.queue.files import QueueFiles
from cometmq.store.queue.open_files import OpenFiles
from cometmq.store.tools.findings import first_set_byte
from cometmq.store.tools.survey import (
    INDEX_FOLDER,
    LOCK,
    QUEUE_FOLDER,
    Survey,
    open_log,
    open_queue,
    survey_store,
)
from cometmq.wire.record.codec import Record
from cometmq.wire.record.walk import WalkEnd

Progress = Callable[[int, int], None]
"""Called with how many bytes of the log are done, and of how many."""

NEW: Final = ".rebuilt"
"""The suffix of a folder of new files until it replaces the old one."""
_OLD: Final = ".replaced"
_PROGRESS_STEP: Final = 1024


class Rebuilt(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a rebuild."""

    root: str
    messages: int
    queues: int
    indexed: int
    """How many messages are in the index."""
    left_out_topics: list[str]
    """Topics with messages in the log that the broker does not know any more."""


def rebuild_store(
    disk: Disk,
    folders: Folders,
    clock: Clock,
    root: Path,
    config: StoreConfig | None = None,
    progress: Progress | None = None,
) -> Rebuilt:
    """Make the queues and the index of a store again; nobody else may use it meanwhile."""
    survey = survey_store(disk, root, config)  # first: a folder that is no store gets no lock file
    lock = disk.lock(root / LOCK)
    if lock is None:
        raise StoreError(f"{root / LOCK} is held by another process: stop the broker of this store first")
    try:
        for name in (QUEUE_FOLDER, INDEX_FOLDER):
            folders.remove_tree(root / (name + NEW))  # left by an interrupted rebuild
        log = open_log(disk, survey)
        with closing(log.files):
            rebuilt = _Rebuild(disk, clock, survey, log, config).run(progress)
        for name in (QUEUE_FOLDER, INDEX_FOLDER):
            exchange(disk, folders, root, name)
        return rebuilt
    finally:
        lock.release()


def exchange(disk: Disk, folders: Folders, root: Path, name: str) -> None:
    """Replace a folder by the new one."""
    current, new, old = root / name, root / (name + NEW), root / (name + _OLD)
    if not disk.entries(new):
        return
    folders.remove_tree(old)
    if disk.entries(current):
        folders.move(current, old)
    else:
        disk.remove(current)
    folders.move(new, current)
    disk.sync_folder(root)
    folders.remove_tree(old)


class _Rebuild:
    """New queues and a new index, beside the old ones."""

    def __init__(
        self, disk: Disk, clock: Clock, survey: Survey, log: LogReader, config: StoreConfig | None
    ) -> None:
        settings = config or StoreConfig(store_path_root_dir=str(survey.root))
        layout = survey.index_layout or IndexLayout(DEFAULT_SLOTS, DEFAULT_ENTRIES)
        self._disk = disk
        self._survey = survey
        self._log = log
        self._file_size = survey.queue_file_size or settings.consume_queue_file_size
        self._folder = survey.root / (QUEUE_FOLDER + NEW)
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._open_files = OpenFiles()
        has_index = config is None or config.message_index_enable
        index_folder = survey.root / (INDEX_FOLDER + NEW)
        self._index = Index(disk, clock, index_folder, *layout) if has_index else None
        self._levels = DelayLevels(settings.message_delay_level)
        self._seen_delays = {} if config is not None else seen_delays(disk, survey, log)
        self._old_topics = {found.topic for found in survey.queues}
        self._left_out: set[str] = set()
        self._messages = self._indexed = 0

    def run(self, progress: Progress | None) -> Rebuilt:
        """Dispatch every record, and sync everything."""
        total = sum(mapped.size for mapped in self._log.files.files)
        try:
            for record in self._records():
                self._dispatch(record)
                if progress is not None and self._messages % _PROGRESS_STEP == 0:
                    progress(record.physical_offset - self._log.min_offset, total)
            for queue in self._queues.values():
                queue.sync()
            if self._index is not None:
                self._index.sync()
            kept = keep_ends(self._disk, self._survey, self._folder, self._file_size, self._queues)
            count = len(self._queues) + kept
        finally:
            for queue in self._queues.values():
                queue.close()
            if self._index is not None:
                self._index.close()
        if progress is not None:
            progress(total, total)
        root, left_out = str(self._survey.root), sorted(self._left_out)
        return Rebuilt(root, self._messages, count, self._indexed, left_out)

    def _records(self) -> Iterator[Record]:
        files = self._log.files
        for begin, end in files.gaps():
            raise StoreError(
                f"the log has no bytes from {begin} to {end}; bring back the files that are missing"
            )
        walk = self._log.walk(self._log.min_offset, check_crc=True)
        yield from walk
        mapped = files.at(walk.position)
        if walk.end is not WalkEnd.MALFORMED or mapped is None:
            return
        is_last = mapped is files.files[-1]
        rest = first_set_byte(mapped.buffer, walk.position - mapped.start, mapped.size)
        # After a crash something may be left after the end of the log; recovery cuts it off.
        if not is_last or (rest is not None and self._survey.stopped_in_order):
            raise StoreError(f"{mapped.file.path} is damaged, and the log continues after it: {walk.error}")

    def _dispatch(self, record: Record) -> None:
        topic = record.topic
        if is_queued(record.sys_flag) and topic not in self._survey.batch_topics:
            if self._is_known(topic):
                code = self._code(record)
                self._append(record, QueuePosition(topic, record.queue_id, record.queue_offset), code)
                for position in further_positions(record.properties_block, record.queue_id):
                    if position.topic in self._old_topics:
                        self._append(record, position, code)
            else:
                self._left_out.add(topic)
        self._messages += 1
        if self._index is not None and is_indexed(record.sys_flag):
            unique_key, keys = index_keys(record)
            if unique_key or keys:
                self._index.put(topic, unique_key, keys, record.physical_offset, record.store_timestamp_ms)
                self._indexed += 1

    def _is_known(self, topic: str) -> bool:
        known = self._survey.known_topics
        return (known is None or topic in known or topic in self._old_topics) and is_file_name(topic)

    def _code(self, record: Record) -> int:
        delay_ms = self._seen_delays.get(delay_level(record.topic, record.properties_block))
        return unit_code(record, self._levels) if delay_ms is None else record.store_timestamp_ms + delay_ms

    def _append(self, record: Record, position: QueuePosition, code: int) -> None:
        queue = self._queues.get(position[:2])
        if queue is None:
            queue = self._new_queue(position)
        elif position.queue_offset != queue.max_offset:
            if position.queue_offset != 0:
                raise StoreError(
                    f"the record at {record.physical_offset} of the log has offset {position.queue_offset} "
                    f"in queue {position.queue_id} of {position.topic!r}, expected {queue.max_offset}"
                )
            # The topic was deleted and made anew: older units belong to nobody.
            queue.destroy()
            queue = self._new_queue(position)
        queue.append(record.physical_offset, record.total_size, code, position.queue_offset)

    def _new_queue(self, position: QueuePosition) -> ConsumeQueue:
        folder = child(self._folder, position.topic, str(position.queue_id))
        queue = ConsumeQueue(self._disk, folder, self._file_size, open_files=self._open_files)
        self._queues[position[:2]] = queue
        return queue


def keep_ends(
    disk: Disk, survey: Survey, folder: Path, file_size: int, made: Collection[tuple[str, int]]
) -> int:
    """Keep the ends of queues whose messages are all expired; returns how many.

    The new queues are in `folder`; those in `made` have messages.
    """
    kept = 0
    for found in survey.queues:
        if (found.topic, found.queue_id) in made:
            continue
        old = open_queue(disk, survey, found)
        end = old.max_offset
        old.close()
        if end:
            files = QueueFiles(disk, child(folder, found.topic, found.folder.name), file_size)
            files.begin_at(end)
            files.sync()
            files.close()
            kept += 1
    return kept


def seen_delays(disk: Disk, survey: Survey, log: LogReader) -> dict[int, int]:
    """The delays of the levels, read from the old queues of delayed messages."""
    delays: dict[int, int] = {}
    for found in survey.queues:
        if found.topic != DELAY_TOPIC:
            continue
        queue = open_queue(disk, survey, found)
        unit = queue.unit(queue.max_offset - 1)
        time_ms = None if unit is None else log.store_time(unit[0])
        if unit is not None and time_ms is not None:
            delays[found.queue_id + 1] = unit[2] - time_ms
        queue.close()
    return delays
