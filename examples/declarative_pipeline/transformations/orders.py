"""Orders from one topic to another: a streaming table, and a sink that its paid orders flow into."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

NAMESRV = os.environ.get("COMETMQ_NAMESRV", "127.0.0.1:9876")


def session() -> SparkSession:
    active = SparkSession.active()
    assert active is not None
    return active


@dp.table
def orders() -> DataFrame:
    """Everything that the topic has, and what comes."""
    return (
        session()
        .readStream.format("rocketmq")
        .option("namesrvAddr", NAMESRV)
        .option("topic", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )


dp.create_sink("paid", "rocketmq", {"namesrvAddr": NAMESRV, "topic": "paid-orders", "exactlyOnce": "true"})


@dp.append_flow(target="paid")
def paid_orders() -> DataFrame:
    """The paid ones, as messages."""
    return session().readStream.table("orders").where("tags = 'paid'").select("body", "tags", "keys")
