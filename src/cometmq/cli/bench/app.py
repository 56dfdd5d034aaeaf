"""`cometmq bench`: measure a running cluster, ours or Apache's, from a client's side."""

from __future__ import annotations

from cometmq.cli.bench import consumer, latency, producer, spark
from cometmq.cli.commands import group_app

app = group_app("bench")
app.command(examples=producer.EXAMPLES)(producer.producer)
app.command(examples=consumer.EXAMPLES)(consumer.consumer)
app.command(examples=latency.EXAMPLES)(latency.latency)
app.command(examples=spark.EXAMPLES)(spark.spark)
