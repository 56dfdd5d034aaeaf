"""Ask a topic in SQL: `python examples/spark_sql.py [NAMESRV]`."""

import sys

from cometmq.spark.pipelines.run.session import Place, spark_session

namesrv = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"

with spark_session(Place("spark-sql", "local[2]")) as spark:
    orders = spark.read.format("rocketmq").option("namesrvAddr", namesrv).option("topic", "orders").load()
    orders.createOrReplaceTempView("orders")
    spark.sql("SELECT tags, count(*) AS orders, max(storeTimestamp) AS last FROM orders GROUP BY tags").show()
