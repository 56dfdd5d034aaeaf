"""Benchmarks: CometMQ beside Apache RocketMQ on the same machine, in the same run.

`python -m bench` runs them all, prints each figure with its target and ratio, keeps the figures as JSON in
`results/`, and makes the page `RESULTS.md` and the plot `results.svg` of what is kept there. A figure on its
own says little (machines drift), so every comparison takes turns between the two servers and keeps the median
of its rounds.

Nothing here imports the package that it measures, except `bench.codec`, which measures it in-process.
"""
