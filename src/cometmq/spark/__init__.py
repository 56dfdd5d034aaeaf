"""Topics as Spark tables and streams: sources, sinks and pipelines, through PySpark's Python data sources.

Needs `cometmq[spark]` and a Java that Spark runs on.
"""
