"""The work of Spark's workers in a rebuild: ranges of the log decoded, queues written, index files written.

Rules kept here:
- What a worker found in its range lies in files of its own, in the order of the log, until others have made
  queues and index files of it. A range is noted as done when its files are on the disk, and is not read again
  by a rebuild that goes on later, as long as the log and the rules are the same.
- Queues and index files are written by the store's own code, so that they have the store's own bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from cometmq.model.errors import StoreError
from cometmq.ports.disk import SystemDisk
from cometmq.ports.files import SystemFiles
from cometmq.spark.log.chunks import LogFile, LogFileReader
from cometmq.spark.rebuild.dispatch import ENTRY_ROW, UNIT_ROW, Dispatched, DispatchRules, Rows
from cometmq.store.index.file import IndexFile, IndexLayout
from cometmq.store.queue.consume_queue import ConsumeQueue

_UNITS: Final = "units"
_ENTRIES: Final = "entries"
_NOTE: Final = "done"
_AT_ONCE: Final = 64 * 1024
_ENTRIES_AT_ONCE: Final = 1024


class Part(msgspec.Struct, frozen=True):
    """Some of the rows that one range gave."""

    number: int
    """That of the range."""
    first: int
    count: int


class RangeTask(msgspec.Struct, frozen=True):
    """Decode a range of the log."""

    number: int
    file: LogFile
    start: int
    stop: int
    folder: str
    """Where to leave what was found."""
    mark: str
    """What everything that was found depends on, as a hash."""


class QueueCount(msgspec.Struct, frozen=True):
    """How many units of a queue a range gave; those of one queue lie behind those of another."""

    topic: str
    queue_id: int
    count: int


class RangeDone(msgspec.Struct, frozen=True):
    """What a range gave."""

    number: int
    messages: int
    indexed: int
    entries: int
    queues: list[QueueCount]
    left_out: list[str]


class _Note(msgspec.Struct, frozen=True):
    """That a range is done."""

    mark: str
    done: RangeDone


class QueueTask(msgspec.Struct, frozen=True):
    """Write a queue."""

    folder: str
    """`<topic>/<queue id>` in the folder of all queues."""
    file_size: int
    source: str
    parts: list[Part]


class IndexTask(msgspec.Struct, frozen=True):
    """Write an index file."""

    path: str
    shape: IndexLayout
    source: str
    parts: list[Part]
    previous: Part | None
    """The last entry of the file before it."""


def decode_range(task: RangeTask, rules: DispatchRules) -> RangeDone:
    """Find out what a range of the log means for queues and index, unless that was done before."""
    folder = Path(task.folder)
    note_path = _rows_path(folder, task.number, _NOTE)
    noted = _noted(note_path)
    if noted is not None and noted.mark == task.mark:
        return noted.done
    note_path.unlink(missing_ok=True)
    dispatched = Dispatched(rules)
    with LogFileReader(task.file) as reader:
        for found in reader.records(reader.beginning_from(task.start), task.stop):
            dispatched.add(task.file.path, found)
    folder.mkdir(parents=True, exist_ok=True)
    queues = []
    with _rows_path(folder, task.number, _UNITS).open("wb") as file:
        for (topic, queue_id), parts in dispatched.units.items():
            rows = np.concatenate(parts)
            rows[np.argsort(rows["place"], kind="stable")].tofile(file)
            queues.append(QueueCount(topic, queue_id, len(rows)))
        os.fsync(file.fileno())
    with _rows_path(folder, task.number, _ENTRIES).open("wb") as file:
        for entries in dispatched.entries:
            entries.tofile(file)
        os.fsync(file.fileno())
    count = sum(map(len, dispatched.entries))
    left_out = sorted(dispatched.left_out)
    done = RangeDone(task.number, dispatched.messages, dispatched.indexed, count, queues, left_out)
    SystemFiles().replace(note_path, msgspec.json.encode(_Note(task.mark, done)))
    return done


def _noted(path: Path) -> _Note | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Note)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def write_queues(tasks: Sequence[QueueTask]) -> None:
    """Write queues, one after the other."""
    for task in tasks:
        _QueueWriter(task).write()


class _QueueWriter:
    """Writes one queue."""

    def __init__(self, task: QueueTask) -> None:
        self._task = task
        self._folder = Path(task.folder)
        ConsumeQueue(SystemDisk(), self._folder, task.file_size).destroy()  # of a task that did not end
        self._queue = self._new_queue()

    def _new_queue(self) -> ConsumeQueue:
        return ConsumeQueue(SystemDisk(), self._folder, self._task.file_size)

    def write(self) -> None:
        try:
            for rows in _rows(Path(self._task.source), _UNITS, self._task.parts):
                breaks = np.flatnonzero(np.diff(rows["queue_offset"]) != 1) + 1
                for run in np.split(rows, breaks):
                    self._append(run)
            self._queue.sync()
        finally:
            self._queue.close()

    def _append(self, run: Rows) -> None:
        """Write units with offsets one behind the other."""
        queue, first = self._queue, int(run["queue_offset"][0])
        if queue.max_physical_offset >= 0 and first != queue.max_offset:
            if first != 0:
                raise StoreError(
                    f"the record at {run['place'][0]} of the log has offset {first} in queue "
                    f"{queue.queue_id} of {queue.topic!r}, expected {queue.max_offset}"
                )
            # The topic was deleted and made anew: what was before it belongs to nobody.
            queue.destroy()
            queue = self._queue = self._new_queue()
        queue.append_many(first, run["place"].tolist(), run["size"].tolist(), run["code"].tolist())


def write_index_file(task: IndexTask) -> None:
    """Write one index file."""
    disk, path, source = SystemDisk(), Path(task.path), Path(task.source)
    disk.remove(path)  # of a task that did not end
    file = IndexFile.create(disk, path, *task.shape, None)
    try:
        if task.previous is not None:
            (last,) = next(_rows(source, _ENTRIES, [task.previous]))
            file.begin_time_ms = file.end_time_ms = int(last["stored_ms"])
            file.begin_offset = file.end_offset = int(last["place"])
        for rows in _rows(source, _ENTRIES, task.parts):
            for first in range(0, len(rows), _ENTRIES_AT_ONCE):
                some = rows[first : first + _ENTRIES_AT_ONCE]
                file.put(some["hash"].tolist(), some["place"].tolist(), some["stored_ms"].tolist())
        file.sync()
    finally:
        file.close()


def _rows_path(folder: Path, number: int, what: str) -> Path:
    return folder / f"{number}.{what}"


def _rows(folder: Path, what: str, parts: Sequence[Part]) -> Iterator[Rows]:
    """Rows that ranges gave, some at a time."""
    kind = UNIT_ROW if what == _UNITS else ENTRY_ROW
    for part in parts:
        path = _rows_path(folder, part.number, what)
        for first in range(part.first, part.first + part.count, _AT_ONCE):
            count = min(_AT_ONCE, part.first + part.count - first)
            yield np.fromfile(path, kind, count, offset=first * kind.itemsize)
