"""Where the units of a queue end."""

from hypothesis import given
from hypothesis import strategies as st

from cometmq.store.queue.files import BLANK_UNIT, UNIT, UNIT_SIZE, end_of_units, whole_units

I64 = st.integers(-(2**63), 2**63 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)
GOOD = UNIT.pack(5_000_000_000, 256, -7)


def end_one_by_one(data: bytearray) -> int:
    for at, (physical_offset, size, _) in enumerate(UNIT.iter_unpack(data)):
        if physical_offset < 0 or size <= 0:
            return at * UNIT_SIZE
    return len(data)


def test_a_file_size_is_rounded_up_to_whole_units() -> None:
    """B4"""
    assert [whole_units(size) for size in (1, 20, 21, 6_000_000)] == [20, 20, 40, 6_000_000]


@given(st.lists(st.tuples(I64, I32, I64), max_size=5), st.integers(0, 700))
def test_the_end_is_before_the_first_unit_that_does_not_count(
    others: list[tuple[int, int, int]], good: int
) -> None:
    """B5"""
    data = bytearray(GOOD * good + b"".join(UNIT.pack(*unit) for unit in others))

    assert end_of_units(data, 0, len(data)) == end_one_by_one(data)


@given(st.integers(0, 1500), st.sampled_from([(-1, 9, 9), (9, 0, 9), (9, -9, 9), (0, 0, 0)]))
def test_one_bad_unit_among_many_ends_them(place: int, bad: tuple[int, int, int]) -> None:
    """B5"""
    data = bytearray(GOOD * 1600)
    data[place * UNIT_SIZE : (place + 1) * UNIT_SIZE] = UNIT.pack(*bad)

    assert end_of_units(data, 0, len(data)) == place * UNIT_SIZE


@given(st.integers(0, 31))
def test_a_size_counts_whichever_of_its_bits_is_set(bit: int) -> None:
    """B5"""
    size = UNIT.pack(9, 0, 9)[:8] + (1 << bit).to_bytes(4, "big") + bytes(8)
    data = bytearray(GOOD + size + GOOD)

    assert end_of_units(data, 0, len(data)) == (UNIT_SIZE if bit == 31 else 3 * UNIT_SIZE)


def test_blank_units_count() -> None:
    """B4"""
    data = bytearray(BLANK_UNIT * 3 + GOOD + bytes(UNIT_SIZE))

    assert end_of_units(data, 0, len(data)) == 4 * UNIT_SIZE
