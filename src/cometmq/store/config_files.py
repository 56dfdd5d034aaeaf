"""The files in `config/`: tables of the managers, each read at the start and replaced whole.

Rules kept here:
- A file is replaced in one step, and the previous one stays beside it as `<name>.bak`; at every instant one
  of the two is whole.
- A file that is missing, empty or unreadable is read from its back-up. It is moved away then, to
  `<name>.unreadable`, because the next save would make a back-up of it.
- What cannot be read from either stops the start: it is never taken for an empty table.
- Everything here blocks, and belongs on a worker thread.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final, Generic, TypeVar

from cometmq.model.errors import HeaderError, StoreError
from cometmq.ports.disk import Disk
from cometmq.store.config_tables import ConfigTable
from cometmq.wire.fastjson_pretty import dumps_table, loads_table

CONFIG_FOLDER: Final = "config"

log = logging.getLogger("cometmq.store")

Table = TypeVar("Table", bound=ConfigTable)


class ConfigFile(Generic[Table]):
    """One file, and the table in it."""

    def __init__(self, disk: Disk, folder: Path, kind: type[Table]) -> None:
        self._disk = disk
        self._kind = kind
        self._saved: bytes | None = None
        self.path = folder / kind.file_name

    def load(self, *, repair: bool = True) -> Table | None:
        """The table, from the file or its back-up; None if there is neither.

        Without `repair` nothing is changed on the disk.
        """
        data = self._disk.read(self.path)
        trouble = "it is empty"
        if data:
            try:
                return self._decode(data)
            except HeaderError as error:
                trouble = error.message
        backup = self._load_backup(trouble if data else None)
        if data is not None and backup is not None:
            log.warning("%s cannot be read (%s); its back-up was read instead", self.path, trouble)
            if repair:
                self._move_away(data)
        return backup

    def save(self, table: Table) -> bool:
        """Put a table in place; the answer is whether it differed from what was saved last."""
        data = dumps_table(table.completed(), pretty=self._kind.is_pretty)
        if data == self._saved:
            return False
        self._disk.replace(self.path, data)
        self._saved = data
        return True

    def _load_backup(self, trouble: str | None) -> Table | None:
        path = self.path.with_name(self.path.name + ".bak")
        data = self._disk.read(path)
        if data:
            try:
                return self._decode(data)
            except HeaderError as error:
                raise StoreError(
                    f"neither {self.path} nor {path} can be read ({error.message}); repair one of them"
                ) from None
        if trouble is not None:
            raise StoreError(
                f"{self.path} cannot be read ({trouble}), and has no back-up; "
                "repair it, or move it away to begin with an empty table"
            )
        return None

    def _decode(self, data: bytes) -> Table:
        return loads_table(self._kind, data)

    def _move_away(self, data: bytes) -> None:
        if data:
            self._disk.replace(self.path.with_name(self.path.name + ".unreadable"), data)
        self._disk.remove(self.path)
        self._disk.sync_folder(self.path.parent)
