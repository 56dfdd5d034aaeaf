"""Benchmarks: CometMQ beside Apache RocketMQ on the same machine, in the same run.

`python -m bench` runs them all, prints each figure with its target and its ratio, and writes the
same figures as JSON. A figure on its own says little (machines drift), so every comparison takes turns
between the two servers and keeps the median of its rounds.

Nothing here imports the package that it measures, except `bench.codec`, which measures it in-process.
"""
