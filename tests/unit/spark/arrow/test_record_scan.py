"""Where records begin in bytes that hold many of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.spark.arrow.record_scan import record_starts, scan_records
from cometmq.wire.record.codec import encode_record
from cometmq.wire.record.layout import FillerError, RecordError, write_filler
from cometmq.wire.record.walk import RecordWalk
from tests.unit.spark.records_kit import placed, record


def walked(content: bytes) -> list[int]:
    walk = RecordWalk(content)
    return [found.physical_offset for found in walk]


def test_a_thousand_short_records_are_found_where_a_walk_finds_them() -> None:
    content = placed(record(bytes(number % 300)) for number in range(1000))
    assert record_starts(content).tolist() == walked(content)


def test_long_records_are_found_where_a_walk_finds_them() -> None:
    content = placed(record(bytes(2000 + number)) for number in range(100))
    assert record_starts(content).tolist() == walked(content)


def test_records_of_one_size_with_another_among_them_are_found_where_a_walk_finds_them() -> None:
    sizes = [30] * 200 + [31] + [30] * 200
    content = placed(record(bytes(size)) for size in sizes)
    assert record_starts(content).tolist() == walked(content)


def test_records_of_one_size_end_at_the_first_that_begins_behind_the_stop() -> None:
    content = placed(record(bytes(30)) for _ in range(200))
    size = len(content) // 200
    for stop in (size * 100, size * 100 + 1, size * 101 - 1):
        scan = scan_records(content, stop)
        assert scan.starts.tolist() == [size * number for number in range(-(-stop // size))]
        assert scan.error is None


def test_records_of_one_size_end_where_the_last_is_cut() -> None:
    content = placed(record(bytes(30)) for _ in range(200))
    scan = scan_records(content[:-1])
    assert len(scan.starts) == 199
    assert scan.error is not None


def test_records_that_are_quoted_in_bodies_are_not_taken_for_records() -> None:
    quoted = bytes(encode_record(record(b"quoted")))
    content = placed(record(quoted * (number % 3), topic="t" * (1 + number % 140)) for number in range(2000))
    assert record_starts(content).tolist() == walked(content)


@given(st.lists(st.binary(max_size=200), min_size=0, max_size=60), st.integers(0, 4000))
def test_a_cut_end_is_an_error_and_what_is_before_it_is_good(bodies: list[bytes], cut: int) -> None:
    content = placed(record(body) for body in bodies)
    whole = content[: len(content) - min(cut, len(content))]
    scan = scan_records(whole)
    assert scan.starts.tolist() == walked(whole)
    assert (scan.error is None) == (scan.position == len(whole))


def test_a_scan_stops_behind_the_record_that_begins_before_its_stop() -> None:
    content = placed(record(bytes(200)) for _ in range(100))
    size = len(content) // 100
    for stop in (50 * size + 1, 51 * size - 1, 51 * size):
        scan = scan_records(content, stop)
        assert scan.starts.tolist() == [number * size for number in range(51)]
        assert (scan.position, scan.error) == (51 * size, None)


def test_the_filler_at_the_end_of_a_file_is_told_from_damage() -> None:
    records = placed(record() for _ in range(50))
    content = bytearray(records) + bytearray(1000)
    write_filler(content, len(records), 1000)
    scan = scan_records(content)
    assert (len(scan.starts), scan.position) == (50, len(records))
    assert isinstance(scan.error, FillerError)
    content[len(records) : len(records) + 8] = bytes(8)
    damaged = scan_records(content)
    assert (len(damaged.starts), damaged.position) == (50, len(records))
    assert isinstance(damaged.error, RecordError)
    assert not isinstance(damaged.error, FillerError)


def test_an_answer_with_anything_but_records_is_refused() -> None:
    with pytest.raises(RecordError, match="at 4"):
        record_starts(b"abcdefghijk" * 20)
    assert record_starts(b"").tolist() == []
