"""Benchmarks: CometMQ beside Apache RocketMQ on the same machine, in the same run.

`python -m bench` runs them all, prints each figure with its target and ratio, keeps the figures as JSON in
`results/`, and makes the page `RESULTS.md` and the plot `results.svg` of what is kept there. A figure on its
own says little (machines drift), so every comparison takes turns between the two servers and keeps the median
of its rounds.

The load generators import nothing of the package that they measure but its figures module
(`cometmq.cli.bench.figures`). `bench.codec`, `bench.message_store`, `bench.store` and `bench.client.worker`
measure it in their own process.
"""
