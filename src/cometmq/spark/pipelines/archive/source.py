"""The source behind archives: a stream of topics that gives files instead of messages.

It is `rocketmq` in all but what its tasks do with the messages: they write them to files
(`files.py`), and hand out a notice of each.

Rules kept here:
- Offsets, limits, commits and losses are those of `rocketmq`, so a checkpoint of one is good for the other.
- It is for pipelines, not for users: `archive` registers it in its session, under a name that says so.
- The files of a batch are in OUTPUT/_temporary/batch=N until the driver moves them.
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
"""What the names of files end in until they are at their place."""
NOTICE_SCHEMA: Final = StructType(
    [
        *(StructField(name, StringType()) for name in ("topic", "day", "name", "begins")),
        *(StructField(name, LongType()) for name in ("rows", "first", "last")),
    ]
)


class FilesPlan(msgspec.Struct, frozen=True):
    """What tasks have to know of an archive."""

    output: str
    zone: str
    """As Java has it: `Z`, `+02:00` or `Europe/Berlin`."""
    compression: str


class Notice(msgspec.Struct, frozen=True):
    """What Spark is told of a file."""

    topic: str
    day: str
    name: str
    begins: str
    """The first offset of each queue, as JSON: `[["broker", 0, 1234]]`."""
    rows: int
    first: int
    last: int
    """The least and the greatest storeTimestamp, in milliseconds."""

    @property
    def first_offsets(self) -> list[tuple[str, int, int]]:
        """Names of brokers, ids of queues and offsets."""
        return msgspec.json.decode(self.begins, type=list[tuple[str, int, int]])


class ArchiveFilesSource(DataSource):
    """Topics as a stream of notices of the files that their messages were written to."""

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
    """Reads topics as they grow, and writes what it reads."""

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
        from cometmq.spark.pipelines.archive.files import write_files  # only workers write

        folder = temporary_folder(Path(self._plan.output), int(batch))
        return write_files(super().read(partition), self._plan, folder)


def temporary_folder(output: Path, batch: int) -> Path:
    """Where the files of a batch are until all of them are there."""
    return output / TEMPORARY / f"batch={batch}"


def zone_of(zone_id: str) -> tzinfo:
    """A time zone by the id that Java has for it."""
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
