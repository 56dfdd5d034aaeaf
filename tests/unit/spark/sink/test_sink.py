"""Rows at a rate."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cometmq.spark.sink.sink import paced


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 100.0

    def read(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def batch(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(range(count))], names=["n"])


@pytest.mark.parametrize(("rate", "sizes"), [(1000, [100] * 3), (50, [5] * 60), (1, [1] * 300)])
def test_rows_come_in_small_pieces_when_they_are_due(rate: int, sizes: list[int]) -> None:
    clock = Clock()
    pieces = paced(iter([batch(200), batch(100)]), rate, clock=clock.read, sleep=clock.sleep)
    seen = [(piece.num_rows, clock.now - 100) for piece in pieces]
    assert [size for size, _ in seen] == sizes
    sent = 0
    for size, at in seen:
        assert at == pytest.approx(sent / rate)
        sent += size


def test_without_a_rate_batches_pass_as_they_are() -> None:
    batches = [batch(3), batch(4)]
    assert list(paced(iter(batches), None)) == batches
