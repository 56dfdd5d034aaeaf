"""The columns of the sink.

Rules kept here:
- Case does not matter. Columns that only a source has are ignored, so that a table can be written as it was
  read; any other unknown column is an error that names the nearest known one.
- Types are checked on the driver, before any task runs.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from cometmq.model.errors import SettingsError
from cometmq.spark.columns import LOG_COLUMNS, SPARK_SCHEMA
from cometmq.spark.options import nearest

_TEXT: Final = (StringType,)
_NUMBER: Final = (ByteType, ShortType, IntegerType, LongType)
_TYPES: Final[dict[str, tuple[tuple[type[DataType], ...], str]]] = {
    "topic": (_TEXT, "a string"),
    "body": ((BinaryType, StringType), "binary or a string"),
    "tags": (_TEXT, "a string"),
    "keys": ((StringType, ArrayType), "a string or an array of strings"),
    "properties": ((MapType,), "a map of strings to strings"),
    "shardingKey": (_TEXT, "a string"),
    "queueId": (_NUMBER, "a whole number"),
    "delayLevel": (_NUMBER, "a whole number"),
    "deliverTimestamp": (
        (TimestampType, TimestampNTZType, LongType),
        "a timestamp, or milliseconds as a bigint",
    ),
}
_PAIRS: Final = (("shardingKey", "queueId"), ("delayLevel", "deliverTimestamp"))

Columns = dict[str, int]
"""The index of each column in a row."""


def sink_columns(schema: StructType, *, has_topic: bool) -> Columns:
    """The columns of a sink; `has_topic` says that the option names a topic."""
    known = {name.lower(): name for name in _TYPES}
    passed_over = {field.name.lower() for field in (*SPARK_SCHEMA.fields, *LOG_COLUMNS)} - known.keys()
    columns: Columns = {}
    for index, field in enumerate(schema.fields):
        name = known.get(field.name.lower())
        if name is None:
            if field.name.lower() not in passed_over:
                hint = nearest(field.name, _TYPES, f"a sink has {', '.join(_TYPES)}", cutoff=0.5)
                raise SettingsError(
                    f"column {field.name} cannot be written; {hint} Drop it, or put it into body or "
                    "properties"
                )
            continue
        if not _fits(name, field.dataType):
            raise SettingsError(
                f"column {field.name} is {field.dataType.simpleString()}; it has to be {_TYPES[name][1]}"
            )
        if name in columns:
            raise SettingsError(f"column {field.name} is there twice; drop one of them")
        columns[name] = index
    if "body" not in columns:
        raise SettingsError("there is no column body; name the column that holds the message so")
    if "topic" not in columns and not has_topic:
        raise SettingsError("no topic is named; write .option('topic', …), or add a column topic")
    for pair in _PAIRS:
        if all(name in columns for name in pair):
            raise SettingsError(f"columns {' and '.join(pair)} exclude each other; drop one of them")
    return columns


def _fits(name: str, given: DataType) -> bool:
    if isinstance(given, ArrayType) and not isinstance(given.elementType, StringType):
        return False
    if isinstance(given, MapType) and not (
        isinstance(given.keyType, StringType) and isinstance(given.valueType, StringType)
    ):
        return False
    return isinstance(given, _TYPES[name][0])
