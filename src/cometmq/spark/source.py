"""Spark source and sink `rocketmq`: topics as tables and streams.

    spark.read.format("rocketmq").option("namesrvAddr", "host:9876").option("topic", "orders").load()

Rules kept here:
- Options are checked when the query is made.
- With `.schema("queueOffset bigint, body binary")` only these columns are read. A schema that names
  `properties` gets those that senders chose, unless an option says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from cometmq.spark.columns import SPARK_SCHEMA, check_columns, chooses_properties
from cometmq.spark.live.batch import FilteringReader, RocketmqReader
from cometmq.spark.live.driver_batches import PromptStreamReader
from cometmq.spark.live.older_spark import OlderStreamReader
from cometmq.spark.live.options import live_options
from cometmq.spark.pushdown import filters_are_pushed
from cometmq.spark.releases import HAS_READ_LIMITS

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter


class RocketmqSource(DataSource):
    """Messages of RocketMQ brokers."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        return SPARK_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        check_columns(schema, SPARK_SCHEMA)
        chosen = chooses_properties(schema, SPARK_SCHEMA)
        options = live_options(self.options, streaming=False, properties_chosen=chosen)
        reader = FilteringReader if filters_are_pushed() else RocketmqReader
        return reader(options, schema.names)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark calls it so
        check_columns(schema, SPARK_SCHEMA)
        reader = PromptStreamReader if HAS_READ_LIMITS else OlderStreamReader
        chosen = chooses_properties(schema, SPARK_SCHEMA)
        options = live_options(self.options, streaming=True, properties_chosen=chosen)
        return reader(options, schema.names)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from cometmq.spark.sink.sink import RocketmqWriter  # not needed to read

        return RocketmqWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark calls it so
        from cometmq.spark.sink.sink import RocketmqStreamWriter

        return RocketmqStreamWriter(self.options, schema, overwrite)
