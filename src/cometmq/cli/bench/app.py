"""`cometmq bench`: measures a system that runs, ours or Apache's, from where a client is.

`producer`, `consumer`, `latency` and `spark` are each in a module of their own; what they send and consume
with is in `bench_sends` and `bench_consumes`.
"""

from __future__ import annotations

from cometmq.cli.bench import consumer as bench_consumer
from cometmq.cli.bench import latency as bench_latency
from cometmq.cli.bench import producer as bench_producer
from cometmq.cli.bench import spark as bench_spark
from cometmq.cli.commands import group_app

app = group_app("bench")
app.command(examples=bench_producer.EXAMPLES)(bench_producer.producer)
app.command(examples=bench_consumer.EXAMPLES)(bench_consumer.consumer)
app.command(examples=bench_latency.EXAMPLES)(bench_latency.latency)
app.command(examples=bench_spark.EXAMPLES)(bench_spark.spark)
