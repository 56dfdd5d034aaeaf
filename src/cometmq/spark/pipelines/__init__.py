"""Spark pipelines over topics, one module each: what `cometmq pipeline NAME` runs.

A pipeline is a job (`ArchiveJob`) and a function of a Spark session and the job (`archive`), so that it runs
the same from the command line, `spark-submit` and a notebook.

Rules kept here:
- A job does not say where Spark runs: it works with any master.
- An interrupted pipeline continues when it is started again with the same job.
- The driver never handles single messages in Python, only reports and summaries.
"""
