"""The message index: finds messages by key and by unique key, newest file first.

Rules kept here:
- A message is indexed under `topic#key` for its unique key, if it has one, then for each of its keys. Nothing
  is indexed twice, so that recovery may dispatch a record again.
- A file is named after the local time of its creation; whatever the clock does, names of newer files sort
  after those of older ones.
- After an unclean stop, files not known to be full and synced are mended: entries stay up to the first
  impossible one. The missing ones are put again from the log.
- The index knows hashes, not keys: the caller has to compare the messages.
- Entries are written in groups, when a group is complete or somebody searches. Entries that could not be
  written, on a full disk for example, stay, and nothing more is taken.
- One thread puts, searches and detaches files. `sync` and `erase` block and belong on another; everything
  else that blocks belongs to start and stop.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.ports.clock import Clock
from cometmq.ports.disk import Disk
from cometmq.store.dispatch_rules import Keyed
from cometmq.store.index.arrays import AT_ONCE, LARGE_GROUP, arrays_are_loaded
from cometmq.store.index.file import IndexFile
from cometmq.store.index.key_hash import KeyHashes, key_hash, key_hashes

if TYPE_CHECKING:  # NumPy is no requirement of a broker
    from cometmq.store.index.arrays import Columns

log = logging.getLogger("cometmq.store")

_FILE_NAME: Final = re.compile("[0-9]{17}")
_TIME_FORMAT: Final = "%Y%m%d%H%M%S%f"
_GROUP: Final = 128
"""How many single records are written at once."""
_SMALL_GROUP: Final = 32
"""Groups of records are written from this many on."""


class IndexMatches(msgspec.Struct, frozen=True):
    """The result of a search."""

    physical_offsets: list[int]
    """Newest first."""
    last_time_ms: int
    """The store time of the last indexed message."""
    last_offset: int
    """Its physical offset."""


class Index:
    """The folder of all index files."""

    def __init__(
        self, disk: Disk, clock: Clock, folder: Path, slots: int, entries: int, *, writable: bool = True
    ) -> None:
        """Files that are not `writable` are never changed."""
        self._disk = disk
        self._clock = clock
        self._folder = folder
        self._slots = slots
        self._entries = entries
        self._writable = writable
        self._files: list[IndexFile] = []
        self._last: IndexFile | None = None
        self._hashes = KeyHashes()
        self._unwritten: list[Keyed] = []
        self.before_find: Callable[[], None] | None = None
        """Called before a search, to dispatch confirmed messages."""
        self._indexed = -1
        """The physical offset of the last indexed record."""
        self._names_changed = False
        self._unsure_from = 0
        """The number of the first file that may not be whole, counted from the oldest."""

    @property
    def edges(self) -> list[tuple[int, int]]:
        """The physical offsets of the first and last record of each file with entries, oldest first."""
        return [(file.begin_offset, file.end_offset) for file in self._files if file.count > 1]

    @property
    def begin_offset(self) -> int | None:
        """The physical offset of the first indexed record; None without one."""
        first = self._files[0] if self._files else None
        return None if first is None or first.count == 1 else first.begin_offset

    @property
    def end_offset(self) -> int:
        """The physical offset of the last indexed record; 0 without one."""
        return max(self._indexed, 0)

    def put(
        self,
        topic: str,
        unique_key: bytes | None,
        keys: bytes | None,
        physical_offset: int,
        store_time_ms: int,
    ) -> None:
        """Index a message that is not rolled back; `keys` are separated by spaces."""
        if physical_offset <= self._indexed:
            self._put_again((topic, unique_key, keys, physical_offset, store_time_ms))
        elif unique_key or keys:
            if len(self._unwritten) >= _GROUP:
                self.write()
            self._unwritten.append((topic, unique_key, keys, physical_offset, store_time_ms))
            self._indexed = physical_offset

    def put_all(self, records: list[Keyed]) -> None:
        """Index messages with keys, in the order of the log."""
        if not records:
            return
        if records[0][3] <= self._indexed:
            for record in records:
                self.put(*record)
            return
        self._unwritten += records
        self._indexed = records[-1][3]
        if len(self._unwritten) >= _SMALL_GROUP:
            self.write()

    def put_columns(self, columns: Columns) -> None:
        """Index hashed keys, by columns."""
        hashes, offsets, _ = columns
        if int(offsets[0]) <= self._indexed:
            return  # indexed when it was read from the log
        self.write()
        file = self._last
        if file is not None and file.count > 1 and len(hashes) <= file.room:
            file.put_columns(columns)
        else:
            for hashed, offset, time_ms in zip(*(each.tolist() for each in columns), strict=True):
                self._put_over_files([hashed], offset, time_ms)
        self._indexed = int(offsets[-1])

    def _put_again(self, record: Keyed) -> None:
        """Index the missing keys of a record that was indexed, maybe in part, before a stop."""
        self.write()
        if record[3] == self._indexed:
            hashes = key_hashes(self._hashes.beginning(record[0]), *record[1:3])
            self._put_over_files(hashes[self._entries_of(record[3]) :], *record[3:])

    def write(self) -> None:
        """Write all entries put so far into the files."""
        while self._unwritten:
            many = len(self._unwritten) >= LARGE_GROUP and arrays_are_loaded()
            written = self._write_columns(self._unwritten[:AT_ONCE]) if many else 0
            if not written:
                written = self._write_together(self._unwritten[:_GROUP])
            if written:
                self._unwritten = self._unwritten[written:]
            else:
                topic, unique_key, keys, physical_offset, store_time_ms = self._unwritten[0]
                hashes = key_hashes(self._hashes.beginning(topic), unique_key, keys)
                if self._last is not None and physical_offset <= self._last.end_offset:
                    del hashes[: self._entries_of(physical_offset)]
                self._put_over_files(hashes, physical_offset, store_time_ms)
                del self._unwritten[0]

    def _write_together(self, records: list[Keyed]) -> int:
        """Write the keys of records at once; returns how many records fit into the last file."""
        file = self._last
        if file is None or file.end_offset >= records[0][3]:
            return 0
        hashes, offsets, times = self._hashes.entries_of(records)
        room, count = file.room, len(records)
        if len(hashes) > room:
            count = next(number for number, record in enumerate(records) if record[3] == offsets[room])
            room = offsets.index(offsets[room])
        if room and hashes:
            file.put(hashes[:room], offsets[:room], times[:room])
        return count

    def _write_columns(self, records: list[Keyed]) -> int:
        """Write the keys of records by columns, if they are alike and fit into the last file; otherwise 0."""
        file = self._last
        if file is None or file.count == 1 or file.end_offset >= records[0][3]:
            return 0
        columns = self._hashes.columns_of(records)
        if columns is None or len(columns[0]) > file.room:
            return 0
        file.put_columns(columns)
        return len(records)

    def _put_over_files(self, hashes: list[int], physical_offset: int, store_time_ms: int) -> None:
        """Put entries into the last file as far as they fit, and the rest into new files."""
        while hashes:
            file = self._last
            if file is None or file.is_full:
                file = self._add_file()
            some = hashes[: file.room]
            file.put(some, [physical_offset] * len(some), [store_time_ms] * len(some))
            hashes = hashes[len(some) :]

    def _entries_of(self, physical_offset: int) -> int:
        """How many keys of the last indexed record are in the files."""
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
        name = index_name(datetime.fromtimestamp(seconds) + timedelta(milliseconds=ms))
        if self._last is not None and name <= (last := self._last.path.name):
            name = index_name(datetime.strptime(last, _TIME_FORMAT) + timedelta(milliseconds=1))
        return name

    def __len__(self) -> int:
        """The number of files."""
        return len(self._files)

    def find(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> IndexMatches:
        """Find messages with a key, or a unique key, that were stored in a time range."""
        if self.before_find is not None:
            self.before_find()
        with suppress(OSError):  # unwritten entries are found later
            self.write()
        if self._last is None:
            return IndexMatches([], 0, 0)
        hashed = key_hash(self._hashes.beginning(topic), key.encode("utf-8", "replace"))
        found: list[int] = []
        for file in reversed(self._files):
            if file.overlaps(begin_ms, end_ms):
                found += file.find(hashed, max_count - len(found), begin_ms, end_ms)
            if file.begin_time_ms < begin_ms or len(found) >= max_count:
                break
        return IndexMatches(found, self._last.end_time_ms, self._last.end_offset)

    def leads_beyond(self, topic: str, key: str) -> bool:
        """Whether another process added entries for a key, which a search may have missed."""
        hashed = key_hash(self._hashes.beginning(topic), key.encode("utf-8", "replace"))
        return any(file.leads_beyond(hashed) for file in self._files)

    def detach_expired(self, log_start: int) -> list[IndexFile]:
        """Detach the files whose messages are all before the start of the log; `erase` deletes them."""
        kept = 0
        while kept < len(self._files) - 1 and self._files[kept].end_offset < log_start:
            kept += 1
        expired, self._files = self._files[:kept], self._files[kept:]
        return expired

    # Everything below blocks

    def erase(self, expired: Iterable[IndexFile]) -> None:
        """Delete detached files."""
        for file in expired:
            file.close()  # Windows removes no file that is mapped
            if self._writable:
                self._disk.remove(file.path)
                self._names_changed = True

    def load(self, *, stopped_cleanly: bool, safe_until_ms: int) -> None:
        """Open the files; after an unclean stop, only full ones up to a time count as whole."""
        for entry in self._disk.entries(self._folder):
            path = self._folder / entry.name
            if entry.is_folder or not _FILE_NAME.fullmatch(entry.name):
                log.warning("%s is not an index file and stays as it is", path)
            elif entry.size == 0:
                if self._writable:
                    self._disk.remove(path)
            else:
                self._files.append(
                    IndexFile.load(self._disk, path, self._slots, self._entries, writable=self._writable)
                )
        whole = (
            file.is_plausible
            and (stopped_cleanly or (file.is_full and file.end_time_ms <= safe_until_ms))
            and (file.is_full or file is self._files[-1])
            for file in self._files
        )
        self._unsure_from = next((number for number, is_whole in enumerate(whole) if not is_whole), len(self))
        self._end_with_last()
        self._names_changed = True  # by an earlier process, and maybe in memory only

    def mend(self, limit: int, store_time: Callable[[int], int | None]) -> None:
        """Drop torn entries with everything after them, and the entries of records from a limit on.

        `store_time` returns that of a record.
        """
        for number, file in enumerate(self._files):
            if number < self._unsure_from and file.end_offset < limit:
                continue
            is_last = file is self._files[-1]
            if not file.mend(limit, store_time, is_last=is_last) or not (is_last or file.is_full):
                self.cut_to(number + (file.count > 1))
                break
        self._unsure_from = len(self)
        self._end_with_last()

    def sync(self, *, only_full: bool = False) -> int:
        """Sync all files, or all full ones; returns the time up to which full files are on the disk.

        While entries are being put, only full files may be synced.
        """
        if not only_full:
            self.write()
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

    def cut_to(self, count: int) -> None:
        """Remove all files but the oldest `count`."""
        expired, self._files = self._files[count:], self._files[:count]
        self._unsure_from = min(self._unsure_from, count)
        self._end_with_last()
        self.erase(expired)

    def _end_with_last(self) -> None:
        self._unwritten = []
        self._last = self._files[-1] if self._files else None
        self._indexed = -1 if self._last is None else self._last.end_offset

    def close(self) -> None:
        with suppress(OSError):
            self.write()
        for file in self._files:
            file.close()
        self._files = []
        self._end_with_last()


def index_name(moment: datetime) -> str:
    """The name of a file made at a moment of local time."""
    return moment.strftime(_TIME_FORMAT)[:-3]
