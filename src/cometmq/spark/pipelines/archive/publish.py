"""Publishing archive files on the driver: which files of tasks count, and their final paths.

Rules kept here:
- Only files that tasks reported are published, by a rename, so that readers see complete files.
- Files of an earlier attempt of the batch are removed just before those of this attempt are published.
  Nothing else is removed.
- Folder names are escaped like those of Spark and Hive.
- This is for mounted file systems. Elsewhere a rename can be a copy, and Python lacks Spark's credentials.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql import functions as fn

from cometmq.model.errors import StateError
from cometmq.model.queue import MessageQueue
from cometmq.ports.names import UnsafeNameError, child
from cometmq.spark.live.offsets import Nested, to_nested
from cometmq.spark.pipelines.archive.source import (
    NOTICE_SCHEMA,
    PLAN_OPTION,
    SOURCE,
    UNFINISHED,
    ArchiveFilesSource,
    FilesPlan,
    Notice,
    temporary_folder,
    zone_of,
)
from cometmq.spark.pipelines.run.streams import MESSAGES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOCAL: Final = "file:"
_ESCAPED: Final = frozenset("\"#%'*/:=?\\\x7f{}[]^") | {chr(code) for code in range(1, 32)}


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a batch."""

    rows: int
    first: int | None
    last: int | None
    """Least and greatest storeTimestamp, in milliseconds."""
    begins: Nested
    """The first offset of each queue; needed for the first batch only."""


def local_folder(address: str) -> Path | None:
    """The folder of an address; None if it is not on a mounted file system."""
    return Path(address.removeprefix(_LOCAL)) if address.startswith(_LOCAL) else None


def escaped(name: str) -> str:
    return "".join(f"%{ord(letter):02X}" if letter in _ESCAPED else letter for letter in name)


class TaskFiles:
    """Lets tasks write the files of an archive, and publishes them."""

    def __init__(self, spark: SparkSession, output: Path, compression: str) -> None:
        self._spark = spark
        self._output = output
        self._plan = FilesPlan(str(output), _zone_id(spark), compression)
        zone_of(self._plan.zone)

    def stream(self, options: Mapping[str, str]) -> DataFrame:
        """The notices of written files."""
        self._spark.dataSource.register(ArchiveFilesSource)
        plan = {PLAN_OPTION: msgspec.json.encode(self._plan).decode()}
        notices = self._spark.readStream.format(SOURCE).options(**options, **plan).load()
        return notices.observe(MESSAGES, fn.sum("rows").alias(MESSAGES))

    def write(self, frame: DataFrame, number: int) -> Written:
        """Run the tasks of a batch, and publish its files."""
        temporary = temporary_folder(self._output, number)
        shutil.rmtree(temporary, ignore_errors=True)  # names are unique, so leftovers do no harm
        try:
            temporary.mkdir(parents=True, exist_ok=True)
            notices = [Notice(*(row[name] for name in NOTICE_SCHEMA.names)) for row in frame.collect()]
            self._publish(notices, number, temporary)
        except OSError as error:
            raise StateError(
                f"{error.filename or self._output} cannot be written: {error.strerror or error}"
            ) from error
        except UnsafeNameError as error:
            raise StateError(f"a topic cannot be archived: {error}; leave it out of the topics") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            with suppress(OSError):  # it is not empty
                temporary.parent.rmdir()
        return Written(
            rows=sum(notice.rows for notice in notices),
            first=min((notice.first for notice in notices), default=None),
            last=max((notice.last for notice in notices), default=None),
            begins=to_nested(_begins(notices)),
        )

    def _publish(self, notices: Sequence[Notice], number: int, temporary: Path) -> None:
        folders: dict[Path, list[Notice]] = {}
        for notice in notices:
            names = f"topic={escaped(notice.topic)}", f"day={notice.day}", f"batch={number}"
            folders.setdefault(child(self._output, *names), []).append(notice)
        for folder, files in folders.items():
            if folder.exists():
                shutil.rmtree(folder)
            folder.mkdir(parents=True)
            for notice in files:
                child(temporary, notice.name + UNFINISHED).rename(child(folder, notice.name))


def _begins(notices: Sequence[Notice]) -> dict[MessageQueue, int]:
    begins: dict[MessageQueue, int] = {}
    for notice in notices:
        for broker, queue_id, offset in notice.first_offsets:
            queue = MessageQueue(notice.topic, broker, queue_id)
            begins[queue] = min(offset, begins.get(queue, offset))
    return begins


def _zone_id(spark: SparkSession) -> str:
    """The time zone of the session, normalized by Java."""
    name = spark.conf.get("spark.sql.session.timeZone")
    assert name is not None
    assert spark.sparkContext._jvm is not None
    dates = spark.sparkContext._jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils
    return str(dates.getZoneId(name).normalized().getId())
