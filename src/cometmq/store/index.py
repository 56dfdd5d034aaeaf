"""The index: finds messages by key and by unique key, through the newest of its files first.

Rules kept here:
- A message is indexed under `topic#key` for its unique key, if it has one, and for each of its keys, in this
  order. What was indexed before is not indexed again, so that a recovery may dispatch records twice.
- A file is named after the local time at which it was made; whatever the clock does, a newer file has a name
  that sorts behind the older ones.
- After an unclean stop only files stay that were full and on the disk; the rest is made anew from the log.
- The index knows hashes, not keys: who asks for a key has to look at the messages.
- One thread puts, asks and takes files out. `sync` and `erase` block and belong on another; what else blocks
  belongs into start and stop.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from cometmq.model.message_properties import KEY_SEPARATOR
from cometmq.ports.clock import Clock
from cometmq.ports.disk import Disk
from cometmq.store.index_file import IndexFile, index_hash
from cometmq.wire.java_hash import java_hash

log = logging.getLogger("cometmq.store")

_FILE_NAME: Final = re.compile("[0-9]{17}")
_TIME_FORMAT: Final = "%Y%m%d%H%M%S%f"
_REMEMBERED_TOPICS: Final = 10_000


class IndexMatches(msgspec.Struct, frozen=True):
    """What a question to the index found."""

    physical_offsets: list[int]
    """Newest first."""
    last_time_ms: int
    """When the last message that was indexed was stored."""
    last_offset: int
    """Where it is."""


class Index:
    """The folder of all index files."""

    def __init__(
        self, disk: Disk, clock: Clock, folder: Path, slots: int, entries: int, *, writable: bool = True
    ) -> None:
        """What is not `writable` is left as it is."""
        self._disk = disk
        self._clock = clock
        self._folder = folder
        self._slots = slots
        self._entries = entries
        self._writable = writable
        self._files: list[IndexFile] = []
        self._last: IndexFile | None = None
        self._topic_hashes: dict[str, int] = {}
        self._names_changed = False

    @property
    def end_offset(self) -> int:
        """Where the last record that was indexed is in the commit log."""
        return 0 if self._last is None else self._last.end_offset

    def put(
        self, topic: str, unique_key: str | None, keys: str | None, physical_offset: int, store_time_ms: int
    ) -> None:
        """Index a message; `keys` has a space between each two. Rolled back transactions are not for here."""
        file = self._last
        done = 0
        if file is not None and physical_offset <= file.end_offset:
            if physical_offset < file.end_offset:
                return
            done = self._entries_of(physical_offset)
        beginning = self._topic_hashes.get(topic)
        if beginning is None:
            beginning = self._hash_topic(topic)
        hashes = [index_hash(beginning, unique_key)] if unique_key else []
        if keys:
            for key in keys.split(KEY_SEPARATOR):
                if key:
                    hashes.append(index_hash(beginning, key))  # noqa: PERF401 - a comprehension is slower here
        if done:
            del hashes[:done]
        if file is None or file.count + len(hashes) > file.capacity:
            self._put_over_files(hashes, physical_offset, store_time_ms)
        elif hashes:
            file.put(hashes, physical_offset, store_time_ms)

    def _put_over_files(self, hashes: list[int], physical_offset: int, store_time_ms: int) -> None:
        """Put into the last file what it has room for, and the rest into new ones."""
        while hashes:
            file = self._last
            if file is None or file.is_full:
                file = self._add_file()
            room = file.capacity - file.count
            file.put(hashes[:room], physical_offset, store_time_ms)
            hashes = hashes[room:]

    def _hash_topic(self, topic: str) -> int:
        if len(self._topic_hashes) >= _REMEMBERED_TOPICS:
            self._topic_hashes.clear()
        beginning = self._topic_hashes[topic] = java_hash(f"{topic}#")
        return beginning

    def _entries_of(self, physical_offset: int) -> int:
        """How many keys of the record that was indexed last are there; a stop may have come in between."""
        entries = 0
        for file in reversed(self._files):
            in_file = file.entries_of(physical_offset)
            entries += in_file
            if in_file < file.count - 1:
                break
        return entries

    def _add_file(self) -> IndexFile:
        path = self._folder / self._new_name()
        self._last = IndexFile.create(self._disk, path, self._slots, self._entries, self._last)
        self._files.append(self._last)
        self._names_changed = True
        return self._last

    def _new_name(self) -> str:
        seconds, ms = divmod(self._clock.now_ms(), 1000)
        name = _name_of(datetime.fromtimestamp(seconds) + timedelta(milliseconds=ms))
        if self._last is not None and name <= (last := self._last.path.name):
            name = _name_of(datetime.strptime(last, _TIME_FORMAT) + timedelta(milliseconds=1))
        return name

    def find(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> IndexMatches:
        """Where messages with a key, or a unique key, may be that were stored in a span of time."""
        if self._last is None:
            return IndexMatches([], 0, 0)
        key_hash = index_hash(java_hash(f"{topic}#"), key)
        found: list[int] = []
        for file in reversed(self._files):
            if file.overlaps(begin_ms, end_ms):
                found += file.find(key_hash, max_count - len(found), begin_ms, end_ms)
            if file.begin_time_ms < begin_ms or len(found) >= max_count:
                break
        return IndexMatches(found, self._last.end_time_ms, self._last.end_offset)

    def detach_expired(self, log_start: int) -> list[IndexFile]:
        """Take out the files that have only messages from before the commit log's start; erase them later."""
        kept = 0
        while kept < len(self._files) - 1 and self._files[kept].end_offset < log_start:
            kept += 1
        expired, self._files = self._files[:kept], self._files[kept:]
        return expired

    # Everything below blocks

    def erase(self, expired: Iterable[IndexFile]) -> None:
        """Take detached files off the disk."""
        for file in expired:
            if self._writable:
                self._disk.remove(file.path)
                self._names_changed = True
            file.close()

    def load(self, *, stopped_cleanly: bool, safe_until_ms: int) -> None:
        """Open the files; after an unclean stop only full ones that end at or before a time."""
        for entry in self._disk.entries(self._folder):
            path = self._folder / entry.name
            if entry.is_folder or not _FILE_NAME.fullmatch(entry.name):
                log.warning("%s is not an index file and stays as it is", path)
            elif entry.size == 0:
                if self._writable:
                    self._disk.remove(path)
            else:
                file = IndexFile.load(self._disk, path, self._slots, self._entries, writable=self._writable)
                if stopped_cleanly or (file.is_full and file.end_time_ms <= safe_until_ms):
                    self._files.append(file)
                else:
                    self.erase([file])
        self._last = self._files[-1] if self._files else None
        self._names_changed = True  # by the process before, and maybe in memory only

    def sync(self, *, only_full: bool = False) -> int:
        """Put everything, or every full file, on the disk; the time up to which full files are there."""
        safe_until_ms = 0
        names_changed, self._names_changed = self._names_changed, False
        try:
            for file in list(self._files):
                if not (file.is_synced or (only_full and not file.is_full)):
                    file.sync()
                if file.is_full and file.is_synced:
                    safe_until_ms = file.end_time_ms
            if names_changed and self._files:
                self._disk.sync_folder(self._folder)
                self._disk.sync_folder(self._folder.parent)
        except OSError:
            self._names_changed = True
            raise
        return safe_until_ms

    def destroy(self) -> None:
        """Remove all files."""
        expired, self._files, self._last = self._files, [], None
        self.erase(expired)

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._files, self._last = [], None


def _name_of(moment: datetime) -> str:
    return moment.strftime(_TIME_FORMAT)[:-3]
