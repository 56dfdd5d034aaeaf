"""Tables, streams and sinks on an older Spark, in a process of its own; it prints what it found."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from cometmq import Message, Producer


def main(namesrv: str, store: str, folder: Path) -> None:
    spark = session(folder)
    with Producer("older-spark", namesrv=namesrv) as producer:
        found = run(spark, namesrv, folder, producer)
    log = spark.read.format("rocketmq-log").option("topic", "numbers").load(store)
    found["log"] = sorted(int(row.body) for row in log.select("body").collect())
    print(json.dumps({"version": spark.version, **found}))
    spark.stop()


def session(folder: Path) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("cometmq-older-spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",  # Spark 4.0 does not know it
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def run(spark: SparkSession, namesrv: str, folder: Path, producer: Producer) -> dict[str, Any]:
    connection = {"namesrvAddr": namesrv}

    def send(first: int, end: int) -> None:
        for number in range(first, end):
            producer.send(Message("numbers", b"%d" % number, tags="n", properties={"number": str(number)}))

    def bodies(topic: str) -> list[int]:
        table = spark.read.format("rocketmq").options(**connection, topic=topic).load()
        return sorted(int(row.body) for row in table.select("body").collect())

    def stream(**options: str) -> DataFrame:
        given = {**connection, "topic": "numbers", "startingOffsets": "earliest", **options}
        return spark.readStream.format("rocketmq").options(**given).load()

    def to_files(**options: str) -> DataStreamWriter:
        writer = stream(group="older", **options).writeStream.format("parquet")
        return writer.option("path", str(folder / "out")).option("checkpointLocation", str(folder / "files"))

    def to_topic(topic: str, **options: str) -> DataStreamWriter:
        writer = stream().select("body").writeStream.format("rocketmq")
        writer = writer.options(**connection, topic=topic, **options)
        return writer.option("checkpointLocation", str(folder / topic))

    send(0, 10)
    found: dict[str, Any] = {"table": bodies("numbers")}
    chosen = spark.read.format("rocketmq").schema("properties map<string,string>, storeTimestamp timestamp")
    rows = chosen.options(**connection, topic="numbers", includeProperties="user").load().collect()
    found["properties"] = sorted(int(row.properties["number"]) for row in rows)

    to_end(to_files())
    send(10, 20)
    query = patiently(to_files())
    query.processAllAvailable()
    send(20, 25)
    query.processAllAvailable()
    query.stop()
    forget_the_last_commit(folder / "files")
    to_end(to_files())
    found["stream"] = sorted(int(row.body) for row in spark.read.parquet(str(folder / "out")).collect())

    to_end(to_topic("once", exactlyOnce="true"))
    forget_the_last_commit(folder / "once")
    to_end(to_topic("once", exactlyOnce="true"))
    found["once"] = bodies("once")
    to_end(to_topic("plain"))
    found["plain"] = bodies("plain")
    table = spark.read.format("rocketmq").options(**connection, topic="numbers").load()
    table.select("body", "tags").write.format("rocketmq").mode("append").options(
        **connection, topic="copies", exactlyOnce="true"
    ).save()
    found["copies"] = bodies("copies")
    found["filtered"] = table.where("queueOffset < 3").count()
    found["refused"] = refusal(to_files(maxOffsetsPerTrigger="5"))
    return found


def to_end(writer: DataStreamWriter) -> None:
    patiently(writer.trigger(availableNow=True)).awaitTermination()


def patiently(writer: DataStreamWriter) -> StreamingQuery:
    """On a busy machine Spark gives up on its own Python before a query has begun, at times."""
    while True:
        query = writer.start()
        try:
            query.processAllAvailable()
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
        else:
            return query


def refusal(writer: DataStreamWriter) -> str:
    try:
        patiently(writer).stop()
    except StreamingQueryException as error:
        return str(error)
    return ""


def forget_the_last_commit(checkpoint: Path) -> None:
    """What a driver that dies before the end of a batch leaves behind."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
