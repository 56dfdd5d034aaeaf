"""Lets Spark find the data source `rocketmq-log` by itself: it looks for modules named `pyspark_…`.

Each of them can bring one source, and `pyspark_cometmq` brings `rocketmq`.
"""

import cometmq.spark.releases  # noqa: F401 - first, because it says so if Spark is too old
from cometmq.spark.log.source import RocketmqLogSource as DefaultSource

__all__ = ["DefaultSource"]
