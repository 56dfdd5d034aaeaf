"""All consume queues of a store, by topic and queue id.

Rules kept here:
- A queue is made when it is first asked for, its files when the first unit is written.
- The queue keeps the offset of its next message; after a start it follows from the units.
- The folder of a topic is inside that of the queues; a name that would lead elsewhere raises
  `UnsafeNameError`.
- Only the writing thread adds and removes queues; other threads use copies of the tables.
- While the queues of a topic are being removed, the topic has none and gets none.
- Queues are synced in parallel, and folders that they share once, after all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from cometmq.ports.disk import Disk
from cometmq.ports.names import child
from cometmq.store.parallel_sync import ParallelSync
from cometmq.store.queue.consume_queue import ConsumeQueue
from cometmq.store.queue.extension import ConsumeQueueExt
from cometmq.store.queue.files import FolderFiles, Unit, whole_units
from cometmq.store.queue.open_files import OpenFiles
from cometmq.store.skipped import Skipped

_PAGE_SIZE: Final = 4096
_QUEUE_ID: Final = re.compile("0|[1-9][0-9]{0,9}")


class ConsumeQueues:
    """The folder with a folder for each topic."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        file_size: int,
        *,
        ext_folder: Path | None = None,
        ext_file_size: int = 48 * 1024 * 1024,
        writable: bool = True,
        parallel_sync: ParallelSync | None = None,
        skipped: Skipped | None = None,
        most_open_files: int | None = None,
    ) -> None:
        """With `ext_folder`, each queue has extensions there. What is not `writable` is never changed."""
        self._disk = disk
        self._folder = folder
        self._file_size = whole_units(file_size)
        self._ext_folder = ext_folder
        self._ext_file_size = ext_file_size
        self._writable = writable
        self._skipped = skipped
        self._parallel_sync = parallel_sync or ParallelSync()
        self.open_files = OpenFiles(most_open_files)
        self.by_topic: dict[str, dict[int, ConsumeQueue]] = {}
        """For look-ups on the hot path; only this class changes it."""
        self.leaving: Final[set[str]] = set()
        """Topics whose files are being removed."""
        self.before_find: Callable[[], None] | None = None
        """Called before a look-up, to dispatch confirmed messages."""

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made if need be."""
        try:
            return self.by_topic[topic][queue_id]
        except KeyError:
            queue = self._make(topic, queue_id)
            self.by_topic.setdefault(topic, {})[queue_id] = queue
            return queue

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue; None if it does not exist."""
        if self.before_find is not None:
            self.before_find()
        queues = self.by_topic.get(topic)
        return None if queues is None else queues.get(queue_id)

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The first offset of a queue and the one after its last; 0 and 0 if it does not exist."""
        queue = self.find(topic, queue_id)
        return (0, 0) if queue is None else (queue.min_offset, queue.max_offset)

    def topics(self) -> list[str]:
        return list(self.by_topic)

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        """The queues of a topic, by queue id."""
        return [queue for _, queue in sorted(self.by_topic.get(topic, {}).items())]

    def __iter__(self) -> Iterator[ConsumeQueue]:
        for queues in list(self.by_topic.values()):
            yield from list(queues.values())

    def __len__(self) -> int:
        return sum(map(len, list(self.by_topic.values())))

    def _make(self, topic: str, queue_id: int) -> ConsumeQueue:
        disk, names, writable = self._disk, (topic, str(queue_id)), self._writable
        ext, open_files = None, self.open_files
        if self._ext_folder is not None:
            ext_folder = child(self._ext_folder, *names)
            ext = ConsumeQueueExt(
                disk, ext_folder, self._ext_file_size, writable=writable, open_files=open_files
            )
        return ConsumeQueue(
            disk,
            child(self._folder, *names),
            self._file_size,
            ext=ext,
            writable=writable,
            skipped=self._skipped,
            open_files=open_files,
        )

    @property
    def max_physical_offset(self) -> int:
        """Where the last record with a unit ends in the log; -1 without any unit."""
        return max((queue.max_physical_offset for queue in self), default=-1)

    def reset_next_offsets(self) -> None:
        """Let every queue continue after its last unit."""
        for queue in self:
            queue.next_offset = queue.max_offset

    def correct_min_offsets(self, log_start: int) -> None:
        """Let every queue begin with its first message that is still in the log."""
        for queue in self:
            queue.correct_min_offset(log_start)

    def detach_topic(self, topic: str) -> list[ConsumeQueue]:
        """Forget the queues of a topic; `destroy` removes their files."""
        queues = list(self.by_topic.pop(topic, {}).values())
        for queue in queues:
            queue.detach()
        if queues:
            self.leaving.add(topic)
        return queues

    # Everything below blocks

    def load(self, *, crashed: bool = False) -> None:
        """Open every queue that has a folder, and find its end."""
        self.open_files.own()
        for topic in self._disk.entries(self._folder):
            if not topic.is_folder:
                continue
            for queue in self._disk.entries(self._folder / topic.name):
                if queue.is_folder and _QUEUE_ID.fullmatch(queue.name):
                    self.get(topic.name, int(queue.name)).load(crashed=crashed)

    def truncate(
        self, log_end: int, is_right: Callable[[ConsumeQueue, int, Unit], bool] | None = None
    ) -> None:
        """Drop the units of all records from the end of the commit log on."""

        def truncate(queue: ConsumeQueue) -> None:
            queue.truncate(log_end, None if is_right is None else partial(is_right, queue))

        self._parallel_sync.each(truncate, list(self))  # each queue syncs what it cuts off

    def sync(self, least_pages: int = 0) -> None:
        """Sync the queues that have at least `least_pages` to write, or anything at all."""
        least = max(least_pages * _PAGE_SIZE, 1)
        renamed: list[FolderFiles] = []
        try:
            dirty = [queue for queue in self if queue.unsynced >= least]
            self._parallel_sync.each(lambda queue: queue.sync(renamed), dirty)
            shared = {folder for files in renamed for folder in files.folders_above}
            self._parallel_sync.each(self._disk.sync_folder, sorted(shared))
        except OSError:
            for files in renamed:
                files.names_changed = True
            raise

    def destroy(self, topic: str, queues: list[ConsumeQueue]) -> None:
        """Remove the detached queues of a topic with all their files."""
        folders = [child(each, topic) for each in (self._folder, self._ext_folder) if each is not None]
        try:
            for queue in queues:
                queue.destroy()
            for folder in folders:
                self._disk.remove(folder)
        finally:
            self.leaving.discard(topic)

    def destroy_all(self) -> None:
        """Remove all queues with all their files."""
        for topic in self.topics():
            self.destroy(topic, self.detach_topic(topic))

    def close(self) -> None:
        for queue in self:
            queue.close()
        self.by_topic.clear()
