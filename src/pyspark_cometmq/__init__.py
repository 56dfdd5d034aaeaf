"""Makes Spark find the source and sink `rocketmq` by itself: it looks into modules whose names begin so."""

import cometmq.spark.releases  # noqa: F401 - first, because it says so if Spark is too old
from cometmq.spark.source import RocketmqSource as DefaultSource

__all__ = ["DefaultSource"]
