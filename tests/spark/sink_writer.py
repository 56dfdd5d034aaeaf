"""Writes numbered rows exactly once, batch after batch, as a program that can be killed and started again.

    python -m tests.spark.sink_writer NAMESRV CHECKPOINT BATCHES

As Spark does, it notes a batch as written when all its partitions are, and begins again with the one behind
the last that it noted.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cometmq.spark.sink.exactly_once import WriteId
from tests.spark.sink_kit import numbered, tasks

ROWS = 2400
PARTITIONS = 2
CHUNK = 150


def main(namesrv: str, checkpoint: str, batches: str) -> None:
    path = Path(checkpoint)
    with tasks(namesrv) as kit:
        for batch in range(int(path.read_text()) if path.exists() else 0, int(batches)):
            for partition in range(PARTITIONS):
                sends = kit.attempt(WriteId("killed", batch, partition))
                first = (batch * PARTITIONS + partition) * ROWS
                for at in range(first, first + ROWS, CHUNK):
                    kit.put(sends, numbered(at, at + CHUNK))
                sends.finish()
            fresh = path.with_suffix(".new")
            fresh.write_text(str(batch + 1))
            fresh.replace(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
