"""The data source `rocketmq-log`: the commit logs of stores as a table, without a broker.

    spark.read.format("rocketmq-log").option("topic", "orders").load("/data/broker-a/store")

Rules kept here:
- Stores are RocketMQ's or ours, of a broker that runs or does not, or copies; several at once have a comma
  between their paths. Every worker has to see them under the same paths. Nothing is written into them.
- Options are checked where the query is made, so that a mistake is told before anything runs.
- With a schema of its own (`.schema("queueOffset bigint, body binary")`) a query gets, and costs, only these
  columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from cometmq.spark.columns import LOG_SCHEMA, PERMISSIVE_LOG_SCHEMA, check_columns
from cometmq.spark.log.options import LogOptions, is_permissive, log_options
from cometmq.spark.log.partitions import LogPlaces, LogRange, QueueParts, plan
from cometmq.spark.pushdown import Wanted, filters_are_pushed, push

if TYPE_CHECKING:
    import pyarrow as pa


class RocketmqLogSource(DataSource):
    """Messages in the files of brokers."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-log"

    def schema(self) -> StructType:
        log_options(self.options)
        return PERMISSIVE_LOG_SCHEMA if is_permissive(self.options) else LOG_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        check_columns(schema, self.schema())
        kind = FilteringLogReader if filters_are_pushed() else LogReader
        return kind(log_options(self.options), schema.names)


class LogReader(DataSourceReader):
    """Reads stores as they are."""

    def __init__(self, options: LogOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._wanted = Wanted()

    def partitions(self) -> Sequence[InputPartition]:
        return plan(self._options, self._wanted)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from cometmq.spark.log.rows import LogRows, read_parts, read_places, read_range  # only workers decode

        if not isinstance(partition, LogRange | QueueParts | LogPlaces):
            return iter(())  # Spark makes one of its own if there is none
        rows = LogRows(self._options, self._wanted, self._columns, partition.broker_name, partition.topics)
        if isinstance(partition, LogRange):
            return read_range(partition, rows)
        if isinstance(partition, LogPlaces):
            return read_places(partition, rows)
        return read_parts(partition, rows, self._wanted.tags)


class FilteringLogReader(LogReader):
    """The same, where Spark pushes the filters of the query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark calls it so
        self._wanted, left = push(filters, self._wanted)
        return left
