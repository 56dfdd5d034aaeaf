"""Count orders by tag as they come: `python examples/spark_stream.py [NAMESRV] [CHECKPOINT]`.

Send some with `python examples/produce.py` while it runs, and stop it with Ctrl-C. With a checkpoint, the
next run goes on where this one stopped, and `cometmq group progress spark-orders` shows how far it is.
"""

import sys
import tempfile

from cometmq.spark.pipelines.run.session import Place, spark_session

namesrv = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
checkpoint = sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp(prefix="spark-orders-")

with spark_session(Place("spark-stream", "local[2]")) as spark:
    orders = (
        spark.readStream.format("rocketmq")
        .option("namesrvAddr", namesrv)
        .option("topic", "orders")
        .option("group", "spark-orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        orders.groupBy("tags")
        .count()
        .writeStream.format("console")
        .outputMode("complete")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="2 seconds")
        .start()
    )
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
