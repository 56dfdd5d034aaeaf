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
app.command(epilog=bench_producer.EPILOG)(bench_producer.producer)
app.command(epilog=bench_consumer.EPILOG)(bench_consumer.consumer)
app.command(epilog=bench_latency.EPILOG)(bench_latency.latency)
app.command(epilog=bench_spark.EPILOG)(bench_spark.spark)
