"""Verifying a store: reads every file, changes none.

Rules kept here:
- Checked are names and sizes of files, every record with its checksums, every queue unit, every index entry,
  checkpoint and timers. A finding says where, what was expected and what was found.
- One walk through the log compares it with queues and index at the same time.
- Not every damage can be found: nothing contradicts a wrong born time, say, in a record without a checksum
  property.
- The caller makes sure that the store is not in use.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from cometmq.model.errors import CometError, StoreError
from cometmq.ports.disk import Disk
from cometmq.store.checkpoint import CHECKPOINT_FIELDS, CHECKPOINT_SIZE
from cometmq.store.config import StoreConfig
from cometmq.store.dispatch_rules import DelayLevels
from cometmq.store.index.file import DEFAULT_ENTRIES, DEFAULT_SLOTS, IndexLayout
from cometmq.store.queue.consume_queue import ConsumeQueue
from cometmq.store.queue.files import UNIT_SIZE
from cometmq.store.queue.open_files import OpenFiles
from cometmq.store.tables.files import CONFIG_FOLDER, ConfigFile
from cometmq.store.tables.tables import (
    ConfigTable,
    ConsumerFilterTable,
    ConsumerOffsetTable,
    ConsumerOrderTable,
    DelayOffsetTable,
    MessageRequestModeTable,
    SubscriptionGroupTable,
    TopicTable,
)
from cometmq.store.tools.findings import Finding, Findings, first_set_byte
from cometmq.store.tools.survey import (
    CHECKPOINT,
    INDEX_FOLDER,
    FoundFile,
    Survey,
    open_log,
    open_queue,
    survey_store,
)
from cometmq.store.tools.verify_index import IndexCheck
from cometmq.store.tools.verify_log import LogCheck
from cometmq.store.tools.verify_queues import QueueCheck, QueueName
from cometmq.store.tools.verify_timers import check_timers

Progress = Callable[[int, int], None]
"""Called with how many bytes of the log are done, and of how many."""

_PROGRESS_STEP: Final = 1024
_TABLES: Final[tuple[type[ConfigTable], ...]] = (
    TopicTable,
    ConsumerOffsetTable,
    SubscriptionGroupTable,
    DelayOffsetTable,
    MessageRequestModeTable,
    ConsumerFilterTable,
    ConsumerOrderTable,
)


class Verification(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a verification."""

    root: Path
    stopped_in_order: bool
    """If not, findings are to be expected, and the next start of a broker recovers the store."""
    records: int
    queues: int
    index_entries: int
    log_end: int
    total_findings: int
    findings: list[Finding]
    """The first ones, if there are very many."""


def verify_store(
    disk: Disk, root: Path, config: StoreConfig | None = None, progress: Progress | None = None
) -> Verification:
    """Verify every file of a store."""
    survey = survey_store(disk, root, config)
    findings = Findings()
    _check_names(survey, findings)
    log = open_log(disk, survey)
    queues = _open_queues(disk, survey, findings)
    try:
        log_check = LogCheck(log, findings)
        levels = None if config is None else DelayLevels(config.message_delay_level)
        queue_check = QueueCheck(queues, survey, log, levels, findings)
        has_index = config is None or config.message_index_enable
        index_check = _index_check(disk, survey, log.min_offset, findings) if has_index else None
        total = sum(mapped.size for mapped in log.files.files)
        for record in log_check:
            queue_check.see(record)
            if index_check is not None:
                index_check.see(record)
            if progress is not None and log_check.records % _PROGRESS_STEP == 0:
                progress(log_check.end - log.min_offset, total)
        queue_check.finish(disk)
        if index_check is not None:
            index_check.finish()
        _check_checkpoint(disk, survey, log_check, findings)
        check_timers(disk, root, log_check.end, findings)
        _check_tables(disk, survey, findings)
        if progress is not None:
            progress(total, total)
        return Verification(
            root=root,
            stopped_in_order=survey.stopped_in_order,
            records=log_check.records,
            queues=len(queues),
            index_entries=0 if index_check is None else index_check.entries,
            log_end=log_check.end,
            total_findings=findings.total,
            findings=list(findings),
        )
    finally:
        for queue in queues.values():
            queue.close()
        log.files.close()


def _check_names(survey: Survey, findings: Findings) -> None:
    for path in survey.misplaced:
        findings.add(path, 0, "nothing of this name here", "it")
    _check_sizes(survey.log_files, survey.log_file_size, findings)
    for queue in survey.queues:
        _check_sizes(queue.files, survey.queue_file_size, findings)
    if survey.queue_file_size % UNIT_SIZE:
        path = survey.queues[0].files[0].path
        findings.add(path, 0, f"files of whole units of {UNIT_SIZE} bytes", survey.queue_file_size)
    if survey.index_layout is not None:
        _check_sizes(survey.index_files, survey.index_layout.file_size, findings)


def _check_sizes(files: list[FoundFile], size: int, findings: Findings) -> None:
    for found in files:
        is_last = found is files[-1]
        if found.size != size and not (is_last and found.size == 0):  # a crash may leave that one
            findings.add(found.path, found.size, f"a file of {size} bytes", found.size)
        if size and len(found.path.name) == 20 and int(found.path.name) % size:
            findings.add(found.path, 0, f"a name that is a multiple of {size}", found.path.name)


def _open_queues(disk: Disk, survey: Survey, findings: Findings) -> dict[QueueName, ConsumeQueue]:
    """Open the readable queues; the files of the others have findings already."""
    queues: dict[QueueName, ConsumeQueue] = {}
    open_files = OpenFiles()
    for found in survey.queues:
        before = findings.total
        try:
            queues[found.topic, found.queue_id] = open_queue(disk, survey, found, open_files)
        except StoreError as error:
            if findings.total == before:
                findings.add(found.folder, 0, "a queue that can be read", error)
    return queues


def _index_check(disk: Disk, survey: Survey, log_start: int, findings: Findings) -> IndexCheck | None:
    used = [found for found in survey.index_files if found.size]
    layout = survey.index_layout
    if layout is None:
        if any(_has_entries(disk, found) for found in used):
            findings.add(used[0].path, 0, "an index file with slots and entries", "no layout that fits")
            return None
        used, layout = [], IndexLayout(DEFAULT_SLOTS, DEFAULT_ENTRIES)
    return IndexCheck(disk, survey.root / INDEX_FOLDER, used, layout, log_start, findings)


def _has_entries(disk: Disk, found: FoundFile) -> bool:
    with closing(disk.open(found.path, writable=False, scattered=True)) as file:
        return first_set_byte(file.buffer, 0, file.size) is not None


def _check_checkpoint(disk: Disk, survey: Survey, log_check: LogCheck, findings: Findings) -> None:
    path = survey.root / CHECKPOINT
    data = disk.read(path)
    if data is None:
        if log_check.records:
            findings.add(path, 0, "a checkpoint", "none")
        return
    if len(data) != CHECKPOINT_SIZE:
        findings.add(path, len(data), f"a file of {CHECKPOINT_SIZE} bytes", len(data))
        return
    fields = CHECKPOINT_FIELDS.unpack_from(data)
    for number, field in enumerate(fields[:3]):
        # One that is too old costs a recovery time; one that is too new would make it miss messages.
        if not 0 <= field <= log_check.last_store_time_ms:
            expected = f"a time up to that of the last message, {log_check.last_store_time_ms}"
            findings.add(path, number * 8, expected, field)
    for number, field in enumerate(fields[3:], 3):
        if not 0 <= field <= log_check.end:
            findings.add(path, number * 8, f"an offset up to {log_check.end}, the end of the log", field)
    rest = data[CHECKPOINT_FIELDS.size :]
    if rest.strip(b"\0"):
        at = len(data) - len(rest.lstrip(b"\0"))
        findings.add(path, at, "nothing after the five numbers", f"{data[at]:#04x}")


def _check_tables(disk: Disk, survey: Survey, findings: Findings) -> None:
    for table in _TABLES:
        file: ConfigFile[ConfigTable] = ConfigFile(disk, survey.root / CONFIG_FOLDER, table)
        try:
            file.load(repair=False)
        except CometError as error:
            findings.add(file.path, 0, "a table, or its back-up", error)
