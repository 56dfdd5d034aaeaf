"""The columns that a sink takes, and what is wrong with others.

Rules kept here:
- Names count without case, as in Spark. Columns that only the source can have are passed over, so that what
  was read can be written; any other unknown column is an error that names the nearest known one.
- Types are checked on the driver, before any task runs.
"""

from __future__ import annotations

import difflib
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

_TEXT: Final = (StringType,)
_NUMBER: Final = (ByteType, ShortType, IntegerType, LongType)
_TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    "topic": _TEXT,
    "body": (BinaryType, StringType),
    "tags": _TEXT,
    "keys": (StringType, ArrayType),
    "properties": (MapType,),
    "shardingKey": _TEXT,
    "queueId": _NUMBER,
    "delayLevel": _NUMBER,
    "deliverTimestamp": (TimestampType, TimestampNTZType, LongType),
}
_WANTED: Final = {
    "topic": "a string",
    "body": "binary or a string",
    "tags": "a string",
    "keys": "a string or an array of strings",
    "properties": "a map of strings to strings",
    "shardingKey": "a string",
    "queueId": "a whole number",
    "delayLevel": "a whole number",
    "deliverTimestamp": "a timestamp, or milliseconds as a bigint",
}
_PAIRS: Final = (("shardingKey", "queueId"), ("delayLevel", "deliverTimestamp"))

Columns = dict[str, int]
"""The place of each column in a row."""


def sink_columns(schema: StructType, *, has_topic: bool) -> Columns:
    """Where the columns of a sink are; `has_topic` says that the option names a topic."""
    known = {name.lower(): name for name in _TYPES}
    passed_over = {field.name.lower() for field in (*SPARK_SCHEMA.fields, *LOG_COLUMNS)} - known.keys()
    columns: Columns = {}
    for place, field in enumerate(schema.fields):
        name = known.get(field.name.lower())
        if name is None:
            if field.name.lower() not in passed_over:
                _refuse_unknown(field.name)
            continue
        if not _fits(name, field.dataType):
            raise SettingsError(
                f"column {field.name} is {field.dataType.simpleString()}; it has to be {_WANTED[name]}"
            )
        if name in columns:
            raise SettingsError(f"column {field.name} is there twice; drop one of them")
        columns[name] = place
    if "body" not in columns:
        raise SettingsError("there is no column body; name the column that holds the message so")
    if "topic" not in columns and not has_topic:
        raise SettingsError("no topic is named; write .option('topic', …), or add a column topic")
    for pair in _PAIRS:
        if all(name in columns for name in pair):
            raise SettingsError(f"columns {' and '.join(pair)} exclude each other; drop one of them")
    return columns


def _fits(name: str, kind: DataType) -> bool:
    if isinstance(kind, ArrayType) and not isinstance(kind.elementType, StringType):
        return False
    if isinstance(kind, MapType) and not (
        isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    ):
        return False
    return isinstance(kind, _TYPES[name])


def _refuse_unknown(name: str) -> None:
    near = difflib.get_close_matches(name, _TYPES, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"a sink has {', '.join(_TYPES)}"
    raise SettingsError(f"column {name} cannot be written; {hint} Drop it, or put it into body or properties")
