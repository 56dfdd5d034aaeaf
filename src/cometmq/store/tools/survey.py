"""Survey of a store directory: which files it has.

Rules kept here:
- Nothing is changed, and no configuration is needed: file sizes are seen, and the layout of an index file
  follows from its content.
- A misplaced file does not stop a survey; it is listed apart.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from cometmq.model.errors import StoreError
from cometmq.ports.disk import Disk
from cometmq.store.config import StoreConfig
from cometmq.store.index.file import IndexLayout, find_layout
from cometmq.store.log.mapped_files import NAME_DIGITS, MappedFile, MappedFiles
from cometmq.store.log.reader import LogReader
from cometmq.store.queue.consume_queue import ConsumeQueue
from cometmq.store.queue.open_files import OpenFiles
from cometmq.store.tables.files import CONFIG_FOLDER, known_topics

LOG_FOLDER: Final = "commitlog"
QUEUE_FOLDER: Final = "consumequeue"
BATCH_QUEUE_FOLDER: Final = "batchconsumequeue"
EXT_FOLDER: Final = "consumequeue_ext"
INDEX_FOLDER: Final = "index"
TIMER_FOLDER: Final = "timerlog"
CHECKPOINT: Final = "checkpoint"
ABORT: Final = "abort"
LOCK: Final = "lock"

_OFFSET_NAME: Final = re.compile(f"[0-9]{{{NAME_DIGITS}}}")
_INDEX_NAME: Final = re.compile("[0-9]{17}")
_QUEUE_ID: Final = re.compile("0|[1-9][0-9]{0,9}")
_KNOWN_FOLDERS: Final = frozenset(
    {
        LOG_FOLDER,
        QUEUE_FOLDER,
        BATCH_QUEUE_FOLDER,
        EXT_FOLDER,
        INDEX_FOLDER,
        CONFIG_FOLDER,
        TIMER_FOLDER,
        "compaction",
    }
)


class FoundFile(msgspec.Struct, frozen=True):
    """A file with a name that fits its folder."""

    path: Path
    size: int


class FoundQueue(msgspec.Struct, frozen=True):
    """A folder `<topic>/<queue id>`."""

    topic: str
    queue_id: int
    folder: Path
    files: list[FoundFile]


class Survey(msgspec.Struct, frozen=True):
    """The files of a store."""

    root: Path
    log_files: list[FoundFile]
    log_file_size: int
    queues: list[FoundQueue]
    queue_file_size: int
    ext_queues: list[FoundQueue]
    """The extensions of queues."""
    index_files: list[FoundFile]
    index_layout: IndexLayout | None
    """Slots and entries of the index files; None if no file tells."""
    batch_topics: frozenset[str]
    """The topics with batch consume queues, which are left alone."""
    known_topics: frozenset[str] | None
    """The topics that the broker knows; None if it left no table of them."""
    misplaced: list[Path]
    """Files and folders that do not belong where they are."""
    others: list[FoundFile]
    """The files of the root itself."""

    @property
    def stopped_in_order(self) -> bool:
        return not any(file.path.name == ABORT for file in self.others)


def survey_store(disk: Disk, root: Path, config: StoreConfig | None = None) -> Survey:
    """Survey a store directory; a configuration says where else the log may be."""
    entries = disk.entries(root)
    misplaced: list[Path] = []
    log_folders = [root / LOG_FOLDER]
    if config is not None and config.store_path_commit_log is not None:
        log_folders = list(config.commit_log_folders)
    log_files = sorted(
        (file for folder in log_folders for file in _named(disk, folder, _OFFSET_NAME, misplaced)),
        key=lambda file: file.path.name,
    )
    names = {entry.name for entry in entries}
    if not log_files and not names & {LOG_FOLDER, CHECKPOINT, QUEUE_FOLDER}:
        raise StoreError(f"{root} is not a store: it has no {LOG_FOLDER} folder")
    if any(entry.name == "CURRENT" for entry in disk.entries(root / QUEUE_FOLDER)):
        raise StoreError(f"{root / QUEUE_FOLDER} is a RocksDB database; only stores of plain files are read")
    queues = list(_queues(disk, root / QUEUE_FOLDER, misplaced))
    index_files = _named(disk, root / INDEX_FOLDER, _INDEX_NAME, misplaced)
    batch_topics = [entry.name for entry in disk.entries(root / BATCH_QUEUE_FOLDER) if entry.is_folder]
    misplaced += [
        root / entry.name for entry in entries if entry.is_folder and entry.name not in _KNOWN_FOLDERS
    ]
    return Survey(
        root=root,
        log_files=log_files,
        log_file_size=_usual_size(log_files),
        queues=queues,
        queue_file_size=_usual_size([file for queue in queues for file in queue.files]),
        ext_queues=list(_queues(disk, root / EXT_FOLDER, misplaced)),
        index_files=index_files,
        index_layout=_index_layout(disk, index_files, config),
        batch_topics=frozenset(batch_topics),
        known_topics=known_topics(disk, root),
        misplaced=misplaced,
        others=[FoundFile(root / entry.name, entry.size) for entry in entries if not entry.is_folder],
    )


def kept_sizes(disk: Disk, settings: Mapping[str, str]) -> dict[str, str]:
    """The file sizes that a store was made with, as settings: a store keeps them; none for a new one.

    `settings` say where it is. Only as many files as necessary are looked at.
    """
    root = Path(settings["storePathRootDir"])
    log_folder = settings.get("storePathCommitLog", "").partition(",")[0]
    log_files = _named(disk, Path(log_folder) if log_folder else root / LOG_FOLDER, _OFFSET_NAME, [])
    queues = _queues(disk, root / QUEUE_FOLDER, [])
    sizes = {
        "mappedFileSizeCommitLog": _usual_size(log_files),
        "mappedFileSizeConsumeQueue": next(filter(None, (_usual_size(each.files) for each in queues)), 0),
        "mappedFileSizeTimerLog": _usual_size(_named(disk, root / TIMER_FOLDER, _OFFSET_NAME, [])),
    }
    layout = _index_layout(disk, _named(disk, root / INDEX_FOLDER, _INDEX_NAME, []), None)
    if layout is not None:
        sizes |= {"maxHashSlotNum": layout.slots, "maxIndexNum": layout.entries}
    return {key: str(size) for key, size in sizes.items() if size}


def open_log(disk: Disk, survey: Survey) -> LogReader:
    """Open the log for reading, whatever the sizes of its files are."""
    files = MappedFiles(disk, survey.root / LOG_FOLDER, survey.log_file_size, writable=False)
    for found in survey.log_files:
        if found.size:
            mapped = MappedFile(disk.open(found.path, writable=False), int(found.path.name))
            mapped.wrote = mapped.flushed = mapped.size
            files.add(mapped)
    return LogReader(files)


def open_queue(
    disk: Disk, survey: Survey, found: FoundQueue, open_files: OpenFiles | None = None
) -> ConsumeQueue:
    """Open a queue for reading; queues open at the same time share `open_files`."""
    queue = ConsumeQueue(disk, found.folder, survey.queue_file_size, writable=False, open_files=open_files)
    queue.load()
    return queue


@contextmanager
def alone_with(disk: Disk, root: Path) -> Iterator[bool]:
    """Lock a store while it is read; False if another process has it.

    A store without a lock file is not in use, and gets none.
    """
    has_lock_file = any(entry.name == LOCK for entry in disk.entries(root))
    if not has_lock_file:
        yield True
        return
    try:
        lock = disk.lock(root / LOCK)
    except OSError:  # read-only, so nobody can use it
        yield True
        return
    if lock is None:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def named_files(disk: Disk, folder: Path, misplaced: list[Path]) -> list[FoundFile]:
    """The files of a folder that are named after offsets; adds others to `misplaced`."""
    return _named(disk, folder, _OFFSET_NAME, misplaced)


def _named(disk: Disk, folder: Path, name: re.Pattern[str], misplaced: list[Path]) -> list[FoundFile]:
    """The files of a folder whose names match."""
    found = []
    for entry in disk.entries(folder):
        if entry.is_folder or not name.fullmatch(entry.name):
            misplaced.append(folder / entry.name)
        else:
            found.append(FoundFile(folder / entry.name, entry.size))
    return found


def _queues(disk: Disk, folder: Path, misplaced: list[Path]) -> Iterator[FoundQueue]:
    for topic in disk.entries(folder):
        if not topic.is_folder:
            misplaced.append(folder / topic.name)
            continue
        for queue in disk.entries(folder / topic.name):
            path = folder / topic.name / queue.name
            if queue.is_folder and _QUEUE_ID.fullmatch(queue.name):
                yield FoundQueue(
                    topic.name, int(queue.name), path, _named(disk, path, _OFFSET_NAME, misplaced)
                )
            else:
                misplaced.append(path)


def _usual_size(files: Sequence[FoundFile]) -> int:
    """The most common file size; 0 without files."""
    sizes = Counter(file.size for file in files if file.size)
    return sizes.most_common(1)[0][0] if sizes else 0


def _index_layout(disk: Disk, files: Sequence[FoundFile], config: StoreConfig | None) -> IndexLayout | None:
    likely = [] if config is None else [IndexLayout(config.max_hash_slot_num, config.max_index_num)]
    for found in files:
        with closing(disk.open(found.path, writable=False, scattered=True)) as file:
            layout = find_layout(file.buffer, found.size, likely)
        if layout is not None:
            return layout
    return likely[0] if likely else None
