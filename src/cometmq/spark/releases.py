"""What differs between releases of Spark.

Spark 4.2 tells a stream where a batch starts and lets it limit the batch; 4.1 pushes filters and writes the
rows of streams as Arrow; 4.0 has neither. What a release lacks has a placeholder here that it never uses.
"""

from __future__ import annotations

from inspect import signature
from typing import Any, Final

import pyspark

from cometmq.model.errors import SettingsError

try:
    from pyspark.sql import datasource
    from pyspark.sql.datasource import DataSourceArrowWriter
    from pyspark.sql.pandas.types import to_arrow_schema
except ImportError:
    raise SettingsError(
        f"this is PySpark {pyspark.__version__}, which has no Python data sources; CometMQ needs PySpark 4.0 "
        "or newer: pip install 'cometmq[spark]'"
    ) from None


class Missing:
    """What this release of Spark lacks."""


try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    HAS_READ_LIMITS = True
except ImportError:
    ReadAllAvailable = ReadLimit = ReadMaxBytes = Missing  # type: ignore[misc,assignment]
    ReadMaxRows = ReadMinRows = Missing  # type: ignore[misc,assignment]
    SupportsTriggerAvailableNow = Missing  # type: ignore[misc,assignment]
    HAS_READ_LIMITS = False

if hasattr(datasource, "DataSourceStreamArrowWriter"):
    StreamArrowWriter = datasource.DataSourceStreamArrowWriter
else:

    class StreamArrowWriter(datasource.DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[no-redef,misc]
        """Spark 4.0 gives Arrow batches to every writer that is a DataSourceArrowWriter."""


_IN_UTC: Final[dict[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
)
"""Before 4.2 times are always in UTC."""


def arrow_schema(schema: Any) -> Any:
    """The Arrow schema that Spark expects for these columns."""
    return to_arrow_schema(schema, **_IN_UTC)


__all__ = [
    "HAS_READ_LIMITS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "StreamArrowWriter",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
]
