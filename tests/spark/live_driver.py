"""The driver of a streaming query in a process of its own, to be killed: topic to Parquet."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter


def main(namesrv: str, topic: str, folder: Path, trigger: str, master: str = "local[2]") -> None:
    """Run until there is nothing left (`availableNow`), or for ever (`forever`)."""
    builder = SparkSession.builder.master(master).appName("cometmq-live-driver")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    reader = (
        spark.readStream.format("rocketmq")
        .option("namesrvAddr", namesrv)
        .option("topic", topic)
        .option("startingOffsets", "earliest")
        .option("minPartitions", "2")
        .option("group", "driven")
    )
    if trigger == "forever":
        reader = reader.option("maxOffsetsPerTrigger", "100")
    stream = reader.load()
    writer = (
        stream.select("queueId", "queueOffset", "body")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    if trigger == "availableNow":
        writer = writer.trigger(availableNow=True)
    run_patiently(writer, folder)
    spark.stop()


def run_patiently(writer: DataStreamWriter, folder: Path) -> None:
    """On a busy machine Spark gives up on its own Python before a query has begun, at times."""
    while True:
        try:
            writer.start(str(folder / "out")).awaitTermination()
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
        else:
            return


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
