"""A Python stream source that does nothing: the time of a micro-batch without a source.

Its rows are made on the worker. Every Python source takes at least this time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

BODY_BYTES = 128


def floor_stream(spark: SparkSession, batch_rows: int) -> DataFrame:
    """A stream of batches with so many rows."""

    # Made here so that they are sent to workers whole: these need not be able to import this module.
    class Reader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark calls it so
            return {"end": 0}

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark calls it so
            return ReadMaxRows(batch_rows)

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark calls it so
            return {"end": start["end"] + batch_rows}

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
            return [InputPartition(end["end"])]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            bodies = pa.array([bytes(BODY_BYTES)] * batch_rows, pa.binary())
            yield pa.RecordBatch.from_arrays([bodies], names=["body"])

    class Nothing(DataSource):
        @classmethod
        def name(cls) -> str:
            return "nothing"

        def schema(self) -> str:
            return "body binary"

        def streamReader(self, schema: Any) -> Reader:  # noqa: N802 - Spark calls it so
            return Reader()

    spark.dataSource.register(Nothing)
    return spark.readStream.format("nothing").load()
