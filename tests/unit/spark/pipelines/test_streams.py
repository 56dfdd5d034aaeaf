"""Running the streams of pipelines."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from cometmq.model.errors import SettingsError
from cometmq.spark import releases
from cometmq.spark.pipelines.run.streams import run_stream


def test_a_stream_of_a_pipeline_is_refused_where_spark_cannot_limit_its_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(releases, "HAS_READ_LIMITS", False)
    writer = Mock()
    with pytest.raises(SettingsError, match=r"needs Spark 4\.2 or newer"):
        run_stream(writer)
    writer.start.assert_not_called()
