"""Verifying the timer log and the timer wheel.

Rules kept here:
- A file of the timer log has records of 52 bytes, then a filler or, in the last file, nothing. A record
  refers to an earlier one of the same moment, or to none, and to a message that the commit log has or had.
- A slot of the wheel has the position of its time, and refers to records that the timer log has or had.
"""

from __future__ import annotations

import struct
from contextlib import closing
from pathlib import Path
from typing import Final

from cometmq.ports.disk import Buffer, Disk
from cometmq.store.timer.log import NO_POSITION, RECORD_SIZE
from cometmq.store.timer.wheel import SLOT_SIZE
from cometmq.store.tools.findings import Findings, first_set_byte
from cometmq.store.tools.survey import FoundFile, named_files
from cometmq.wire.record.layout import MAGIC_FILLER

TIMER_LOG_FOLDER: Final = "timerlog"
TIMER_WHEEL: Final = "timerwheel"

_RECORD: Final = struct.Struct(">iqIqiqiiq")
_FILLER: Final = struct.Struct(">iqI")
_SLOT: Final = struct.Struct(">qqqii")
_MAGIC_BITS: Final = 0xF
_BLOCK_SIZE: Final = 128 * SLOT_SIZE
_EMPTY_BLOCK: Final = bytes(_BLOCK_SIZE)


def check_timers(disk: Disk, root: Path, log_end: int, findings: Findings) -> None:
    """Check all records and slots; `log_end` is the end of the commit log."""
    misplaced: list[Path] = []
    files = [file for file in named_files(disk, root / TIMER_LOG_FOLDER, misplaced) if file.size]
    for path in misplaced:
        findings.add(path, 0, "nothing of this name here", "it")
    end = 0
    for found in files:
        if found.size != files[0].size:
            findings.add(found.path, found.size, f"a file of {files[0].size} bytes", found.size)
        end = _check_file(disk, found, log_end, findings, is_last=found is files[-1])
    _check_wheel(disk, root / TIMER_WHEEL, end, findings)


def _check_file(disk: Disk, found: FoundFile, log_end: int, findings: Findings, *, is_last: bool) -> int:
    """Check the records of one file; returns the position after the last one."""
    with closing(disk.open(found.path, writable=False)) as file:
        start, at = int(found.path.name), 0
        while at + RECORD_SIZE <= file.size and _is_record(file.buffer, at, start, log_end):
            at += RECORD_SIZE
        end = start + at
        rest = at
        if at + _FILLER.size <= file.size:
            size, _, magic = _FILLER.unpack_from(file.buffer, at)
            if magic == MAGIC_FILLER and size == file.size - at:
                rest, end = at + _FILLER.size, start + file.size
        if rest == at and not is_last:
            findings.add(found.path, at, "a timer record or a filler", _head(file.buffer, at))
        else:
            found_at = first_set_byte(file.buffer, rest, file.size)
            if found_at is not None:
                findings.add(
                    found.path, at, "a timer record, or nothing from here on", _head(file.buffer, at)
                )
        return end


def _is_record(buffer: Buffer, at: int, start: int, log_end: int) -> bool:
    size, previous, magic, _, _, offset, message_size, _, reserved = _RECORD.unpack_from(buffer, at)
    return bool(
        size == RECORD_SIZE
        and NO_POSITION <= previous < start + at
        and magic & ~_MAGIC_BITS == 0
        and offset >= 0
        and 0 < message_size <= log_end - offset
        and reserved == 0
    )


def _check_wheel(disk: Disk, path: Path, log_end: int, findings: Findings) -> None:
    if all(entry.name != path.name for entry in disk.entries(path.parent)):
        return
    with closing(disk.open(path, writable=False)) as file:
        slots, rest = divmod(file.size, SLOT_SIZE)
        if rest or not slots:
            findings.add(path, file.size, f"a file of whole slots of {SLOT_SIZE} bytes", file.size)
            return
        for start in range(0, file.size, _BLOCK_SIZE):
            block = bytes(file.buffer[start : start + _BLOCK_SIZE])
            if block == _EMPTY_BLOCK[: len(block)]:
                continue
            for at, slot in enumerate(_SLOT.iter_unpack(block), start // SLOT_SIZE):
                if any(slot) and not _is_slot(slot, at, slots, log_end):
                    expected = f"a slot of this position with records before {log_end}"
                    findings.add(path, at * SLOT_SIZE, expected, slot)


def _is_slot(slot: tuple[int, ...], index: int, slots: int, log_end: int) -> bool:
    # The number of timers may be negative: a cancellation that comes too late counts, too.
    time, first, last, _, _ = slot
    return time % slots == index and NO_POSITION <= first <= last < log_end


def _head(buffer: Buffer, at: int) -> str:
    return bytes(buffer[at : at + 16]).hex(" ", 4)
