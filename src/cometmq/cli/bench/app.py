"""`cometmq bench`: measure a running cluster, ours or Apache's, from a client's side."""

from __future__ import annotations

from cometmq.cli.bench import consumer, latency, producer, spark
from cometmq.cli.commands import CommandGroup

app = CommandGroup("bench")
app.command()(producer.producer)
app.command()(consumer.consumer)
app.command()(latency.latency)
app.command()(spark.spark)
