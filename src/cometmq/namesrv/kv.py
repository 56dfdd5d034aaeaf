"""Key-value configuration by namespace, kept in `kvConfig.json` in the form of Apache's name server.

Rules kept here: a change is on disk before it is visible or answered; one that cannot be written changes
nothing. Changes are made one after the other, their writing on a worker thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from cometmq.model.errors import CometError, HeaderError
from cometmq.ports.files import Files
from cometmq.wire.bodies.json_body import decode_json_body
from cometmq.wire.codes import ResponseCode
from cometmq.wire.json import fastjson

log = logging.getLogger("cometmq.namesrv")

MAX_KEYS: Final = 20_000
MAX_CHARACTERS: Final = 8 * 1024 * 1024
"""With this many namespaces and keys, or with names and values of this length, a further one is refused."""

Table = dict[str, dict[str, str]]


class _Stored(msgspec.Struct, rename="camel"):
    config_table: Table | None = None


class KvConfig:
    """The table, and its file."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self._table: Table = {}
        self._changing = asyncio.Lock()

    def load(self) -> None:
        """Read the file; a missing one is an empty table, an unreadable one stops the start."""
        try:
            text = self._files.read(self._path)
            stored = _Stored()
            if text and text.strip():
                stored = decode_json_body(_Stored, text, max_chars=fastjson.MAX_FILE_CHARS)
        except (OSError, HeaderError) as error:
            raise CometError(
                f"{self._path} cannot be read: {error}; repair it, or restore its .bak"
            ) from None
        self._table = stored.config_table or {}

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        return self._table.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        async with self._changing:
            before = self.get(namespace, key)
            if before is None and len(self._table) + sum(map(len, self._table.values())) >= MAX_KEYS:
                raise _full(f"{MAX_KEYS} namespaces and keys")
            size = sum(map(len, self._table))
            size += sum(len(each) for keys in self._table.values() for pair in keys.items() for each in pair)
            more = len(key) + len(value) - len(before or "")
            if size + more + (0 if namespace in self._table else len(namespace)) > MAX_CHARACTERS:
                raise _full(f"namespaces, keys and values of {MAX_CHARACTERS} characters")
            await self._replace(namespace, {**self._table.get(namespace, {}), key: value})

    async def delete(self, namespace: str, key: str) -> None:
        """Remove a key; the namespace stays, even empty."""
        async with self._changing:
            keys = self._table.get(namespace)
            if keys is not None and key in keys:
                await self._replace(namespace, {k: v for k, v in keys.items() if k != key})

    async def _replace(self, namespace: str, keys: dict[str, str]) -> None:
        table = {**self._table, namespace: keys}
        try:
            await asyncio.to_thread(self._write, table)
        except OSError as error:
            log.error("%s cannot be written: %s", self._path, error)
            raise CometError(
                f"the change could not be stored: {error.strerror or error}; nothing was changed"
            ) from None
        self._table = table

    def _write(self, table: Table) -> None:
        self._files.replace(self._path, fastjson.dumps({"configTable": table}))


def _full(what: str) -> CometError:
    return CometError(
        f"the name server keeps at most {what}; delete keys that nobody needs",
        code=ResponseCode.SYSTEM_ERROR,
    )
