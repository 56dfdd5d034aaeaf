"""A streaming query from files to a topic, exactly once, as a program of its own that can be killed.

python -m tests.spark.sink_driver NAMESRV TOPIC FOLDER CHECKPOINT
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession


def main(namesrv: str, topic: str, folder: str, checkpoint: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": f"{checkpoint}.local",
        "spark.sql.warehouse.dir": f"{checkpoint}.warehouse",
        # Each file is a partition, and gives several Arrow batches.
        "spark.sql.files.maxPartitionBytes": "65536",
        "spark.sql.files.openCostInBytes": "65536",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    }
    builder = SparkSession.builder.master("local[2]").appName("sink-driver")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    lines = spark.readStream.option("maxFilesPerTrigger", 2).text(folder).withColumnRenamed("value", "body")
    options = {
        "namesrvAddr": namesrv,
        "topic": topic,
        "exactlyOnce": "true",
        "checkpointLocation": checkpoint,
    }
    writer = lines.writeStream.format("rocketmq").options(**options)
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
