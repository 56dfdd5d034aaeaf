"""The internal source of archives: a stream that writes messages to files and returns a notice of each file.

Rules kept here:
- Offsets, limits, commits and losses are those of `rocketmq`, and checkpoints are interchangeable.
- `archive` registers the source in its session; it is not for users.
- The files of a batch are in OUTPUT/_temporary/batch=N until the driver publishes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from cometmq.model.errors import SettingsError, StateError
from cometmq.spark.columns import SPARK_SCHEMA
from cometmq.spark.live.options import LiveOptions, live_options
from cometmq.spark.live.stream import RocketmqStreamReader
from cometmq.spark.sink.sink import BATCH_ID

if TYPE_CHECKING:
    import pyarrow as pa

SOURCE: Final = "cometmq-archive-files"
PLAN_OPTION: Final = "archivePlan"
TEMPORARY: Final = "_temporary"
UNFINISHED: Final = ".unfinished"
"""The suffix of files that are not published."""
NOTICE_SCHEMA: Final = StructType(
    [
        *(StructField(name, StringType()) for name in ("topic", "day", "name", "begins")),
        *(StructField(name, LongType()) for name in ("rows", "first", "last")),
    ]
)


class FilesPlan(msgspec.Struct, frozen=True):
    """The archive as tasks get it."""

    output: str
    zone: str
    """Java's id: `Z`, `+02:00` or `Europe/Berlin`."""
    compression: str


class Notice(msgspec.Struct, frozen=True):
    """A row of the source: one written file."""

    topic: str
    day: str
    name: str
    begins: str
    """The first offset of each queue, as JSON: `[["broker", 0, 1234]]`."""
    rows: int
    first: int
    last: int
    """Least and greatest storeTimestamp, in milliseconds."""

    @property
    def first_offsets(self) -> list[tuple[str, int, int]]:
        return msgspec.json.decode(self.begins, type=list[tuple[str, int, int]])


class ArchiveFilesSource(DataSource):
    """A stream of notices of archived files."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> StructType:
        return NOTICE_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark calls it so
        options: Mapping[str, str] = self.options
        plan = msgspec.json.decode(options[PLAN_OPTION], type=FilesPlan)
        others = {name: value for name, value in options.items() if name.lower() != PLAN_OPTION.lower()}
        return ArchivingReader(live_options(others, streaming=True), plan)


class ArchivingReader(RocketmqStreamReader):
    """Reads topics as a stream, and writes the messages to files."""

    def __init__(self, options: LiveOptions, plan: FilesPlan) -> None:
        super().__init__(options, SPARK_SCHEMA.names)
        self._plan = plan

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_plan": self._plan}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        batch = None if task is None else task.getLocalProperty(BATCH_ID)
        if batch is None:
            raise StateError("Spark does not say which batch this is; archives are written by streams")
        from cometmq.spark.pipelines.archive.files import write_files  # only workers need it

        folder = temporary_folder(Path(self._plan.output), int(batch))
        return write_files(super().read(partition), self._plan, folder)


def temporary_folder(output: Path, batch: int) -> Path:
    """The folder of the unpublished files of a batch."""
    return output / TEMPORARY / f"batch={batch}"


def zone_of(zone_id: str) -> tzinfo:
    """A time zone by its id in Java."""
    try:
        fixed = datetime.strptime(zone_id, "%z").tzinfo
    except ValueError:
        fixed = None
    try:
        return fixed or ZoneInfo(zone_id)
    except (KeyError, ValueError, OSError):
        raise SettingsError(
            f"Python does not know the time zone {zone_id}; install tzdata, or set spark.sql.session.timeZone"
        ) from None
