"""A query over Spark Connect in a process of its own: a table and a stream of a topic, to files."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.live_driver import run_patiently


def main(namesrv: str, topic: str, folder: Path) -> None:
    spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    given = {"namesrvAddr": namesrv, "topic": topic, "startingOffsets": "earliest"}
    table = spark.read.format("rocketmq").options(**given).load()
    table.select("body").write.parquet(str(folder / "table"))
    stream = spark.readStream.format("rocketmq").options(**given).load()
    writer = (
        stream.select("body")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
    )
    run_patiently(writer, folder)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
