"""Small text files beside the data of a pipeline, on any file system of Spark, and topic names of a cluster.

Rules kept here: a file is complete or missing; writing replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from cometmq.client.admin.admin import Admin
from cometmq.client.settings import ClientSettings
from cometmq.model.errors import StateError
from cometmq.spark.options import CONNECTION_OPTIONS, Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def settings_of(options: Mapping[str, str]) -> ClientSettings:
    """Client settings from options of a source or sink; other options are ignored."""
    known = {name.lower() for name in CONNECTION_OPTIONS}
    reached = {name: value for name, value in options.items() if name.lower() in known}
    return Options(reached, CONNECTION_OPTIONS, "a connection").client_settings()


async def topic_names(options: Mapping[str, str]) -> list[str]:
    async with Admin(settings_of(options)) as admin:
        return await admin.topics()


_UNFINISHED: Final = ".unfinished"


def joined(folder: str, *names: str) -> str:
    """A path below a folder or an address such as `s3a://bucket/archive`."""
    return "/".join((folder.rstrip("/"), *names))


class Files:
    """Files on the file systems of a session."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext

    def read(self, path: str) -> str | None:
        """The text of a file; None if it does not exist."""
        system, target = self._at(path)
        if not system.exists(target):
            return None
        stream = system.open(target)
        try:
            text: str = self._java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        return text

    def write(self, path: str, text: str) -> None:
        """Create or replace a file."""
        system, target = self._at(path)
        unfinished = self._at(path + _UNFINISHED)[1]
        stream = system.create(unfinished, True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        system.delete(target, False)
        if not system.rename(unfinished, target):
            raise StateError(f"{path} cannot be written; look at the rights of its folder")

    def names(self, folder: str) -> list[str]:
        """The complete files of a folder, sorted; empty if it does not exist."""
        system, target = self._at(folder)
        if not system.exists(target):
            return []
        found = (str(each.getPath().getName()) for each in system.listStatus(target))
        return sorted(name for name in found if not name.startswith(".") and not name.endswith(_UNFINISHED))

    def whole_path(self, path: str) -> str:
        """The path with its file system."""
        system, target = self._at(path)
        return str(system.makeQualified(target).toString())

    @property
    def _java(self) -> Any:
        return self._context._jvm

    def _at(self, path: str) -> tuple[Any, Any]:
        target = self._java.org.apache.hadoop.fs.Path(path)
        return target.getFileSystem(self._context._jsc.hadoopConfiguration()), target
