"""The columns of a message in Spark.

Rules kept here:
- Names, order and types are fixed: queries depend on them.
- Spark accepts an Arrow batch only with exactly the schema that it derives from the columns itself; times are
  UTC.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cometmq.model.errors import SettingsError
from cometmq.spark.releases import arrow_schema

SPARK_SCHEMA: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("brokerName", StringType()),
        StructField("queueId", IntegerType()),
        StructField("queueOffset", LongType()),
        StructField("msgId", StringType()),
        StructField("tags", StringType()),
        StructField("keys", ArrayType(StringType())),
        StructField("properties", MapType(StringType(), StringType())),
        StructField("body", BinaryType()),
        StructField("bornTimestamp", TimestampType()),
        StructField("storeTimestamp", TimestampType()),
        StructField("bornHost", StringType()),
        StructField("reconsumeTimes", IntegerType()),
    ]
)
"""The columns of both sources."""

LOG_COLUMNS: Final = (StructField("physicalOffset", LongType()),)
"""Additional columns of the log source."""

ERROR_COLUMN: Final = StructField("error", StringType())
"""What is wrong with a damaged part of the log; only in permissive mode."""


ARROW_SCHEMA: Final[pa.Schema] = arrow_schema(SPARK_SCHEMA)
LOG_SCHEMA: Final = StructType([*SPARK_SCHEMA.fields, *LOG_COLUMNS])
PERMISSIVE_LOG_SCHEMA: Final = StructType([*LOG_SCHEMA.fields, ERROR_COLUMN])
ARROW_FIELDS: Final = {field.name: field for field in arrow_schema(PERMISSIVE_LOG_SCHEMA)}
"""All columns of all sources, by name."""


def chooses_properties(asked: StructType, default: StructType) -> bool:
    """Whether a user's schema names the properties; the default schema has them as nulls."""
    return "properties" in asked.names and asked.names != default.names


def check_columns(asked: StructType, known: StructType) -> None:
    """Refuse a user's schema with unknown columns or other types."""
    for field in asked.fields:
        if field.name not in known.names:
            raise SettingsError(f"there is no column {field.name!r}; there are {', '.join(known.names)}")
        wanted = known[field.name].dataType
        if field.dataType != wanted:
            raise SettingsError(
                f"column {field.name!r} is {wanted.simpleString()}, not {field.dataType.simpleString()}; "
                "cast it in the query"
            )
