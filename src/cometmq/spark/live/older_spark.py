"""Streams on Spark 4.0 and 4.1, which do not tell the reader where a batch starts.

Rules kept here:
- A batch starts where the last one ended. After a restart Spark first asks for the partitions of an empty
  batch at the end of the last planned one.
- A batch takes everything that is there: with `availableNow` these releases run one batch.
- A batch is finished when Spark asks for the end of the next one, or plans it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition

from cometmq.client.blocking.loop import background
from cometmq.model.errors import SettingsError
from cometmq.spark.live.driver_batches import PromptStreamReader
from cometmq.spark.live.offsets import from_nested, to_nested
from cometmq.spark.live.options import LiveOptions
from cometmq.spark.releases import ReadAllAvailable


class OlderStreamReader(PromptStreamReader):
    """A stream reader that remembers the end of the last batch."""

    def __init__(self, options: LiveOptions, columns: Sequence[str]) -> None:
        for name, value in options.limits.items():
            if value is not None:
                raise SettingsError(f"{name} needs Spark 4.2 or newer; leave it out")
        super().__init__(options, columns)
        self._first_start: dict[str, Any] | None = None
        self._last_end: Mapping[str, Any] | None = None
        self._has_run = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark calls it so
        """Spark asks for it after the end of the first batch."""
        if self._first_start is None:
            self._first_start = super().initialOffset()
        return self._first_start

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 - Spark calls it so
        start = from_nested(self.initialOffset() if self._last_end is None else self._last_end)
        find_end = self._finished if self._has_run else self._next
        self._last_end = end = to_nested(background().run(find_end(start, ReadAllAvailable())))
        return end

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        self._last_end = end
        self._has_run = start != end
        return super().partitions(start, end)
