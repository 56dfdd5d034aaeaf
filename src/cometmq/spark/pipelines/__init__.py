"""Ready pipelines over topics, one module each: what `cometmq pipeline NAME` runs.

A pipeline is a struct of what it is told (`ArchiveJob`) and a function that does it with a Spark session
(`archive`), so that it runs in the same way from the command line, from `spark-submit` and from a notebook.

Rules kept here:
- Where Spark runs is no part of a job: the same definition runs on this machine and on any master.
- What is interrupted goes on where it stopped when it is started again with the same definition.
- Rows are never looked at in Python on the driver; only reports and their summaries are.
"""
