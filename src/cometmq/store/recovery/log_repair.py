"""Repair of a damaged commit log, or its refusal.

Rules kept here:
- The files of a log follow one another without a gap, each of the configured size; retention removes them at
  the beginning. Anything else is refused, with what is wrong and what to do.
- With `recoverWhatIsLeft` the log is repaired to an ordinary log, for Apache's broker, too. A missing file is
  made with nothing but a filler. Damaged bytes between whole records become records of the topic
  `rmq_sys_lost_records`, which are in no queue and no index. Recovery cuts off damage at the very end.
- Only damaged bytes are overwritten. Each lost range is logged and counted.
- Everything here blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from cometmq.model.errors import StoreError
from cometmq.model.names import LOST_TOPIC
from cometmq.model.sysflag import TransactionType
from cometmq.ports.disk import Disk, Entry
from cometmq.store.config import StoreConfig
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.log.damage import next_in_file
from cometmq.store.log.mapped_files import NAME_DIGITS, MappedFile
from cometmq.store.skipped import Skipped
from cometmq.wire.record.codec import Record, encode_record
from cometmq.wire.record.crc import CRC_PROPERTY_LENGTH, seal_record, with_crc_room
from cometmq.wire.record.layout import FIXED_V4, HEAD, write_filler
from cometmq.wire.record.walk import WalkEnd

log = logging.getLogger("cometmq.store")

WHAT_TO_DO: Final = (
    "look at it with `cometmq store verify`, and bring back what is missing, from a copy for example; "
    "or start with --recover-what-is-left, which serves what is left and lets consumers pass over the rest"
)
_LARGEST: Final = 1024 * 1024
_PLACEHOLDER: Final = FIXED_V4.size + 3 + CRC_PROPERTY_LENGTH
"""The size of a placeholder record without body and topic."""
_NO_HOST: Final = bytes(8)


class DamagedStoreError(StoreError):
    """A store that is damaged and was not opened or changed."""


def check_files(disk: Disk, config: StoreConfig, skipped: Skipped) -> bool:
    """Refuse a log with missing or short files, or repair it; returns whether it was repaired."""
    size = config.mapped_file_size_commit_log
    found = sorted(_files(disk, config), key=lambda item: item[1].name)
    while found and found[-1][1].size == 0:
        found.pop()  # left by a crash
    for path, entry in found:
        if int(entry.name) % size or entry.size > size:
            raise DamagedStoreError(
                f"{path}, with {entry.size} bytes, is not one of a commit log of files of {size} bytes: set "
                "mappedFileSizeCommitLog to what the store was made with, or move away the files of another "
                "store"
            )
    broken = [
        (path, f"{path} has {entry.size} bytes, expected {size}")
        for path, entry in found
        if entry.size < size
    ]
    starts = [int(entry.name) for _, entry in found]
    gaps = [(before + size, after) for before, after in pairwise(starts) if before + size != after]
    problems = [what for _, what in broken] + [
        f"the commit log has no bytes from {start} to {end}: {(end - start) // size} files are missing, "
        f"from {start:0{NAME_DIGITS}} on"
        for start, end in gaps
    ]
    if not problems:
        return False
    if not config.recover_what_is_left:
        raise DamagedStoreError(f"{config.root} is damaged: {'; '.join(problems)}; {WHAT_TO_DO}")
    for path, _ in broken:
        _complete(disk, path, size)
    for start, end in gaps:
        for each in range(start, end, size):
            _make_blank(disk, found[0][0].parent, each, size)
        skipped.log_range(start, end, "files are missing, and their messages are lost")
    return True


def _files(disk: Disk, config: StoreConfig) -> Iterator[tuple[Path, Entry]]:
    for folder in config.commit_log_folders:
        for entry in disk.entries(folder):
            if not entry.is_folder and len(entry.name) == NAME_DIGITS and entry.name.isdecimal():
                yield folder / entry.name, entry


def _complete(disk: Disk, path: Path, size: int) -> None:
    """Restore the size of a short file, with zeros for the lost bytes."""
    data = disk.read(path) or b""
    disk.remove(path)
    file = disk.create(path, size)
    file.reserve(0, size)
    file.write_through(0, data)
    file.wrote(0, len(data))
    file.sync()
    file.close()
    disk.sync_folder(path.parent)


def _make_blank(disk: Disk, folder: Path, start: int, size: int) -> None:
    """Make a file with nothing but a filler."""
    path = folder / f"{start:0{NAME_DIGITS}}"
    file = disk.create(path, size)
    file.reserve(0, HEAD.size)
    write_filler(file.buffer, 0, size)
    file.wrote(0, HEAD.size)
    file.sync()
    file.close()
    disk.sync_folder(folder)


def repair_damage(commit_log: CommitLog, config: StoreConfig, skipped: Skipped) -> bool:
    """Replace damage before whole records by placeholder records; returns whether there was any."""
    repaired, stored_ms = False, 0
    position = commit_log.min_offset
    while True:
        walk = commit_log.walk(
            position,
            check_crc=config.check_crc_on_recover,
            verify_record_crc=config.force_verify_prop_crc,
        )
        for record in walk:
            stored_ms = record.store_timestamp_ms
        mapped = commit_log.files.at(walk.position)
        if walk.end is not WalkEnd.MALFORMED or mapped is None:
            return repaired
        start = walk.position - mapped.start
        following = next_in_file(mapped, start + 1)
        end = mapped.size if following is None else following
        if following is None and not _has_records_after(commit_log, mapped):
            return repaired
        _overwrite(mapped, start, end, stored_ms, is_end=following is None)
        skipped.log_range(walk.position, mapped.start + end, "they were damaged, and their messages are lost")
        repaired = True
        position = mapped.start + end


def _has_records_after(commit_log: CommitLog, mapped: MappedFile) -> bool:
    return any(
        next_in_file(other, 0) is not None for other in commit_log.files.files if other.start > mapped.start
    )


def _overwrite(mapped: MappedFile, start: int, end: int, stored_ms: int, *, is_end: bool) -> None:
    """Fill a range of a file with placeholders, or with a filler if it `is_end` of the file."""
    mapped.file.reserve(start, end)
    if is_end:
        mapped.file.write_through(start, bytes(end - start))
        if end - start >= HEAD.size:
            write_filler(mapped.buffer, start, end - start)
    else:
        at = start
        while at < end:
            size = end - at if end - at <= 2 * _LARGEST else _LARGEST
            mapped.file.write_through(at, placeholder(mapped.start + at, size, stored_ms))
            at += size
    mapped.file.wrote(start, end)
    mapped.file.sync()


def leave_hole(commit_log: CommitLog, upto: int) -> None:
    """Let the log continue in the first file after an offset, with nothing in between.

    So the offsets of lost messages are not used again, and old references to them find no other message.
    """
    files = commit_log.files
    last = files.files[-1]
    if last.wrote < last.size:
        _overwrite(last, last.wrote, last.size, 0, is_end=True)
        last.wrote = last.flushed = last.size
    while files.next_start < upto:
        mapped = files.create(files.next_start)
        mapped.reserve(HEAD.size, HEAD.size)
        write_filler(mapped.buffer, 0, mapped.size)
        mapped.file.wrote(0, HEAD.size)
        files.sync_name(mapped)
        mapped.wrote = mapped.flushed = mapped.size
        files.add(mapped)


def placeholder(physical_offset: int, size: int, stored_ms: int) -> bytes:
    """A record of a given size that is dispatched nowhere, with a checksum property if that fits."""
    is_sealed = size > _PLACEHOLDER
    rest = size - _PLACEHOLDER + (0 if is_sealed else CRC_PROPERTY_LENGTH)
    topic = LOST_TOPIC[: max(rest, 0)]
    record = Record(
        topic=topic,
        body=bytes(rest - len(topic)),
        physical_offset=physical_offset,
        sys_flag=int(TransactionType.ROLLBACK),
        store_timestamp_ms=stored_ms,
        born_timestamp_ms=stored_ms,
        born_host=_NO_HOST,
        store_host=_NO_HOST,
        properties_block=with_crc_room(b"") if is_sealed else b"",
    )
    data = encode_record(record)
    if is_sealed:
        seal_record(data, 0, size)
    return bytes(data)
