"""The files in `config/`: JSON tables, read at the start and replaced as a whole.

Rules kept here:
- A file is replaced in one step, and the previous one stays beside it as `<name>.bak`; at every instant one
  of the two is whole.
- A missing, empty or unreadable file is read from its back-up. It is moved away to `<name>.unreadable`,
  because the next save would make a back-up of it. So is a folder in the place of a file.
- If neither can be read, the start fails: that is never taken for an empty table. Only a derived table starts
  empty then.
- Everything here blocks, and belongs on a worker thread.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final, Generic, TypeVar

from cometmq.model.errors import CometError, HeaderError, StoreError
from cometmq.ports.disk import Disk, DiskFile
from cometmq.store.tables.tables import ConfigTable, TopicTable
from cometmq.wire.json.pretty import dumps_table, loads_table

CONFIG_FOLDER: Final = "config"
_EMPTY: Final = "it is empty"

log = logging.getLogger("cometmq.store")

Table = TypeVar("Table", bound=ConfigTable)


def move_away(disk: Disk, path: Path) -> None:
    """Rename a file, or a folder in its place, to make way for a new file."""
    taken = {entry.name for entry in disk.entries(path.parent) if entry.is_folder}
    names = (f"{path.name}.unreadable{number}" for number in ("", *range(2, 100)))
    disk.rename(path, next(name for name in names if name not in taken))
    disk.sync_folder(path.parent)


def make_file(disk: Disk, path: Path, size: int) -> DiskFile:
    """Create a file of a fixed size; its name is on the disk when this returns."""
    file = disk.create(path, size)
    file.sync()
    disk.sync_folder(path.parent)
    return file


class ConfigFile(Generic[Table]):
    """One file, and the table in it."""

    def __init__(self, disk: Disk, folder: Path, kind: type[Table]) -> None:
        self._disk = disk
        self._kind = kind
        self._saved: bytes | None = None
        self.is_begun_anew = False
        """Whether an unreadable file was replaced by an empty table."""
        self.path = folder / kind.file_name
        self._backup_path = self.path.with_name(self.path.name + ".bak")

    def load(self, *, repair: bool = True) -> Table | None:
        """The table from the file or its back-up; None without either. `repair` moves bad files away."""
        table, trouble = self._read(self.path)
        if trouble is None and table is not None:
            return table
        backup, backup_trouble = self._read(self._backup_path)
        if backup is None:
            self._refuse(trouble, backup_trouble)
        if trouble is None:
            return backup
        what = "is begun anew" if backup is None else "its back-up was read instead"
        self.is_begun_anew = backup is None
        if backup is not None or trouble != _EMPTY:
            log.warning("%s cannot be read (%s); %s", self.path, trouble, what)
        if repair and (backup is not None or self._kind.is_derived):
            for path, reason in ((self.path, trouble), (self._backup_path, backup_trouble)):
                if reason == _EMPTY:
                    self._disk.remove(path)
                elif reason is not None:
                    move_away(self._disk, path)
        return backup

    def save(self, table: Table) -> bool:
        """Save a table; returns whether it differed from the last one."""
        data = dumps_table(table.completed(), pretty=self._kind.is_pretty)
        if data == self._saved:
            return False
        self._disk.replace(self.path, data)
        self._saved = data
        return True

    def _read(self, path: Path) -> tuple[Table | None, str | None]:
        """The table of a file, or why it cannot be read; neither without a file."""
        try:
            data = self._disk.read(path)
        except IsADirectoryError:
            return None, "it is a folder"
        if data is None:
            return None, None
        if not data:
            return None, _EMPTY
        try:
            return loads_table(self._kind, data), None
        except HeaderError as error:
            return None, error.message

    def _refuse(self, trouble: str | None, backup_trouble: str | None) -> None:
        """Raise if neither file can be read and the table is not derived."""
        if self._kind.is_derived or not {trouble, backup_trouble} - {None, _EMPTY}:
            return
        if trouble is not None and backup_trouble is not None:
            raise StoreError(
                f"neither {self.path} nor {self._backup_path} can be read ({trouble}; {backup_trouble}); "
                "repair one of them, or move both away to begin with an empty table"
            )
        path = self.path if trouble is not None else self._backup_path
        raise StoreError(
            f"{path} cannot be read ({trouble or backup_trouble}), and has no back-up; "
            "repair it, or move it away to begin with an empty table"
        )


def known_topics(disk: Disk, root: Path) -> frozenset[str] | None:
    """The topics in the table of a broker; None without a readable table."""
    try:
        table = ConfigFile(disk, root / CONFIG_FOLDER, TopicTable).load(repair=False)
    except CometError:
        return None
    return None if table is None else frozenset(table.topic_config_table)
