"""Spark source `rocketmq-log`: commit logs of stores as a table, without a broker.

    spark.read.format("rocketmq-log").option("topic", "orders").load("/data/broker-a/store")

Rules kept here:
- Reads stores of RocketMQ and CometMQ, of running or stopped brokers, or copies; several paths are separated
  by commas. Every worker needs the same paths. Nothing is written into a store.
- Options are checked when the query is made.
- With `.schema("queueOffset bigint, body binary")` only these columns are read. A schema that names
  `properties` gets those that senders chose, unless an option says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from cometmq.spark.columns import LOG_SCHEMA, PERMISSIVE_LOG_SCHEMA, check_columns, chooses_properties
from cometmq.spark.log.options import LogOptions, log_options
from cometmq.spark.log.partitions import LogPartition, plan
from cometmq.spark.pushdown import Wanted, filters_are_pushed, push

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter


class RocketmqLogSource(DataSource):
    """Messages in the files of brokers."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-log"

    def schema(self) -> StructType:
        return PERMISSIVE_LOG_SCHEMA if log_options(self.options).permissive else LOG_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        check_columns(schema, self.schema())
        reader = FilteringLogReader if filters_are_pushed() else LogReader
        chosen = chooses_properties(schema, self.schema())
        return reader(log_options(self.options, properties_chosen=chosen), schema.names)


class LogReader(DataSourceReader):
    def __init__(self, options: LogOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._wanted = Wanted()

    def partitions(self) -> Sequence[InputPartition]:
        return plan(self._options, self._wanted)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from cometmq.spark.log.rows import (
            LogRows,
        )  # only workers decode

        if not isinstance(partition, LogPartition):
            return iter(())  # Spark's own partition, if there is none
        rows = LogRows(self._options, self._wanted, self._columns, partition.broker_name, partition.topics)
        return rows.read(partition)


class FilteringLogReader(LogReader):
    """Takes filters that Spark pushes."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark calls it so
        self._wanted, left = push(filters, self._wanted)
        return left
