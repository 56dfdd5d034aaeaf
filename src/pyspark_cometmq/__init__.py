"""Makes Spark find the source and sink `rocketmq` by itself: it looks into modules whose names begin so."""

from cometmq.spark.source import RocketmqSource as DefaultSource

__all__ = ["DefaultSource"]
