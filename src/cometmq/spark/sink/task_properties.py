"""Where Spark tells the tasks of a streaming query what they belong to."""

from __future__ import annotations

from typing import Final

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
