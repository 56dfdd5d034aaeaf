"""`cometmq pipeline`: the Spark pipelines."""
