"""The index of keys: what is written, and what is found."""

from __future__ import annotations

import struct
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.store.index.file import IndexLayout
from cometmq.store.index.index import Index
from cometmq.store.index.key_hash import hashes_of_all, hashes_of_each, key_hash
from cometmq.testing.clock import VirtualClock
from cometmq.testing.simulation.disk import SimulatedDisk
from cometmq.wire.java_hash import java_hash
from tests.unit.store.index.index_kit import (
    ENTRIES,
    EVER,
    FOLDER,
    SLOTS,
    START_MS,
    an_index,
    files,
    found,
    put,
)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def test_a_hash_is_never_negative() -> None:
    """B10"""
    assert key_hash(java_hash("TopicTest#"), b"key1") == 1655984460
    assert key_hash(0, b"polygenelubricants") == 0
    assert key_hash(0, b"TagA") == 2598919
    beginning = (2**31 - java_hash("7F")) * pow(31**2, -1, 2**32)
    assert key_hash(beginning, b"7F") == 0


@given(
    st.text(max_size=20),
    st.text(max_size=90)
    | st.text("0123456789ABCDEF", max_size=70)
    | st.text("0123456789ABCXYZ_", max_size=40),
)
def test_a_hash_is_that_of_topic_and_key_behind_each_other(topic: str, key: str) -> None:
    """B10: the positive number that Java's is, for keys of every kind."""
    topic, key = topic.encode("utf-8", "replace").decode(), key.encode("utf-8", "replace").decode()
    whole = java_hash(f"{topic}#{key}")

    assert key_hash(java_hash(f"{topic}#"), key.encode()) == (0 if whole == -(2**31) else abs(whole))


@given(
    st.integers(-(2**31), 2**31 - 1),
    st.lists(st.text("0123456789ABCDEF", min_size=32, max_size=32), min_size=1, max_size=5)
    | st.lists(st.text("0123456789abcXYZ", min_size=1, max_size=70), min_size=1, max_size=5)
    | st.lists(st.text("0123456789é", min_size=1, max_size=4), min_size=1, max_size=5),
    st.sampled_from(["", "order-", "é", "0A0000010000", "x" * 70]),
)
def test_many_keys_have_the_same_hashes_as_each_of_them(beginning: int, keys: list[str], start: str) -> None:
    """B10: also if all of them begin alike."""
    encoded = [f"{start}{key}".encode() for key in keys]

    assert hashes_of_all(beginning, encoded) == [key_hash(beginning, key) for key in encoded]
    beginnings = [beginning + number for number in range(len(keys))]
    assert hashes_of_each(beginnings, encoded) == list(map(key_hash, beginnings, encoded))
    zero = (2**31 - java_hash("7F")) * pow(31**2, -1, 2**32)
    assert hashes_of_all(zero, [b"7F", b"80"]) == [0, key_hash(zero, b"80")]


def test_a_file_has_the_size_that_the_peers_give_it() -> None:
    """B10"""
    assert IndexLayout(5_000_000, 20_000_000).file_size == 420_000_040


def test_header_slots_and_entries_are_where_the_peers_expect_them(disk: SimulatedDisk) -> None:
    """B10"""
    index = an_index(disk)
    put(index, "orders", None, "a", 500, START_MS)
    put(index, "orders", None, "a", 600, START_MS + 2999)
    hashed = key_hash(java_hash("orders#"), b"a")

    (data,) = files(disk, index)
    assert struct.unpack_from(">qqqqii", data) == (START_MS, START_MS + 2999, 500, 600, 1, 3)
    assert struct.unpack_from(">i", data, 40 + hashed % SLOTS * 4) == (2,)
    entries_at = 40 + SLOTS * 4
    assert struct.unpack_from(">iqii", data, entries_at + 20) == (hashed, 500, 0, 0)
    assert struct.unpack_from(">iqii", data, entries_at + 40) == (hashed, 600, 2, 1)


def test_a_message_is_found_by_unique_key_and_by_each_of_its_keys(disk: SimulatedDisk) -> None:
    """B10"""
    index = an_index(disk)
    put(index, "orders", "7F000001", "paid  42 größe", 500, START_MS)
    put(index, "bills", None, "42", 600, START_MS)

    assert [found(index, key) for key in ("7F000001", "paid", "42", "größe")] == [[500]] * 4
    assert found(index, "42", topic="bills") == [600]
    assert found(index, "") == []


def test_a_message_without_keys_is_not_indexed(disk: SimulatedDisk) -> None:
    """B10"""
    index = an_index(disk)
    put(index, "orders", None, None, 500, START_MS)
    put(index, "orders", "", "", 600, START_MS)

    assert index.end_offset == 0
    assert found(index, "a") == []


def test_an_answer_says_how_far_the_index_is(disk: SimulatedDisk) -> None:
    """B10"""
    index = an_index(disk)
    assert index.find("orders", "a", 64, 0, EVER).last_offset == 0
    put(index, "orders", None, "a", 500, START_MS)
    put(index, "orders", None, "b", 700, START_MS + 5)

    matches = index.find("orders", "a", 64, 0, EVER)
    assert (matches.physical_offsets, matches.last_offset, matches.last_time_ms) == ([500], 700, START_MS + 5)


def test_the_newest_messages_come_first_and_not_more_than_asked_for(disk: SimulatedDisk) -> None:
    """B10: over several files."""
    index = an_index(disk)
    for number in range(50):
        put(index, "orders", None, "a", 100 * number, START_MS + number)

    assert len(files(disk, index)) == 3
    assert found(index, "a") == [100 * number for number in reversed(range(50))]
    assert found(index, "a", count=30) == [100 * number for number in reversed(range(20, 50))]


def test_a_new_file_goes_on_from_the_end_of_the_full_one(disk: SimulatedDisk) -> None:
    """B10: its first entry counts its seconds from there, as the peers write it."""
    index = an_index(disk)
    for number in range(ENTRIES - 1):
        put(index, "orders", None, "a", 100 * number, START_MS)
    put(index, "orders", None, "a", 5000, START_MS + 7500)
    put(index, "orders", None, "a", 6000, START_MS + 9500)

    full, new = files(disk, index)
    assert struct.unpack_from(">qqqqii", full) == (START_MS, START_MS, 0, 1800, 1, ENTRIES)
    assert struct.unpack_from(">qqqqii", new) == (START_MS + 7500, START_MS + 9500, 5000, 6000, 1, 3)
    entries_at = 40 + SLOTS * 4
    assert [struct.unpack_from(">i", new, entries_at + n * 20 + 12) for n in (1, 2)] == [(7,), (2,)]


def test_the_keys_of_a_message_may_lie_in_two_files(disk: SimulatedDisk) -> None:
    """B10: and dispatching it again adds none."""
    index = an_index(disk)
    for number in range(ENTRIES - 3):
        put(index, "orders", None, "x", 100 * number, START_MS)
    for _ in range(2):
        put(index, "orders", "u", "a b c", 5000, START_MS)

    assert [struct.unpack_from(">i", data, 36) for data in files(disk, index)] == [(ENTRIES,), (3,)]
    assert [found(index, key) for key in "uabc"] == [[5000]] * 4


def test_a_message_with_more_keys_than_a_file_has_room_for_is_found_by_all(disk: SimulatedDisk) -> None:
    """B10"""
    index = an_index(disk)
    keys = [f"k{number}" for number in range(3 * ENTRIES)]
    put(index, "orders", None, " ".join(keys), 500, START_MS)

    assert [found(index, key) for key in keys] == [[500]] * len(keys)


Message = tuple[str, str | None, str | None, int]
"""Topic, unique key, keys, and the seconds since the message before."""

MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["orders", "bills"]),
        st.none() | st.sampled_from(["u1", "u2", "u3"]),
        st.none() | st.lists(st.sampled_from(["a", "b", "cc", ""]), max_size=3).map(" ".join),
        st.integers(0, 3),
    ),
    max_size=60,
)


def fill(index: Index, messages: list[Message]) -> dict[tuple[str, str], list[tuple[int, int]]]:
    """Index messages, and give a table of what was indexed: place and time by topic and key, newest first."""
    table: dict[tuple[str, str], list[tuple[int, int]]] = {}
    now = START_MS
    for number, (topic, unique_key, keys, gap_s) in enumerate(messages):
        now += gap_s * 1000  # whole seconds, which is what an entry can say
        put(index, topic, unique_key, keys, 100 * number, now)
        for key in filter(None, [unique_key, *(keys or "").split(" ")]):
            table.setdefault((topic, key), []).insert(0, (100 * number, now))
    return table


@given(MESSAGES, st.integers(1, 30))
def test_over_all_files_is_found_what_a_table_of_all_messages_has(
    messages: list[Message], count: int
) -> None:
    """B10: hashes of different keys differ here."""
    index = an_index(SimulatedDisk())

    for (topic, key), places in fill(index, messages).items():
        assert found(index, key, topic=topic, count=count) == [place for place, _ in places][:count]


@given(MESSAGES, st.integers(-2, 40), st.integers(0, 40))
def test_a_span_of_time_finds_what_a_table_of_all_messages_has(
    messages: list[Message], begin_s: int, span_s: int
) -> None:
    """B10"""
    index = an_index(SimulatedDisk(), entries=1000)
    begin_ms = START_MS + begin_s * 1000
    end_ms = begin_ms + span_s * 1000

    for (topic, key), places in fill(index, messages).items():
        expected = [place for place, time in places if begin_ms <= time <= end_ms]
        assert index.find(topic, key, 1000, begin_ms, end_ms).physical_offsets == expected


def test_a_span_of_time_leaves_out_what_is_before_and_behind_it(disk: SimulatedDisk) -> None:
    """B10"""
    index = an_index(disk)
    for number in range(10):
        put(index, "orders", None, "a", 100 * number, START_MS + 1000 * number)

    matches = index.find("orders", "a", 64, START_MS + 3000, START_MS + 5000)
    assert matches.physical_offsets == [500, 400, 300]
    assert index.find("orders", "a", 64, START_MS + 20_000, EVER).physical_offsets == []
    assert index.find("orders", "a", 64, 0, START_MS - 1).physical_offsets == []


def test_a_file_is_named_after_the_local_time(disk: SimulatedDisk) -> None:
    """B10"""
    moment = datetime(2026, 7, 4, 5, 6, 7, 89_000)
    index = an_index(disk, VirtualClock(round(moment.timestamp() * 1000)))
    put(index, "orders", None, "a", 500, START_MS)
    index.write()

    assert [entry.name for entry in disk.entries(FOLDER)] == ["20260704050607089"]


@pytest.mark.parametrize("jump_ms", [0, 1, -3_600_000])
def test_a_newer_file_sorts_behind_an_older_one_whatever_the_clock_does(
    disk: SimulatedDisk, jump_ms: int
) -> None:
    """B10: several in a millisecond, or the hour that comes twice in autumn."""
    clock = VirtualClock()
    index = an_index(disk, clock)
    for number in range(60):
        if number == ENTRIES:
            clock.set_wall_clock(clock.now_ms() + jump_ms)
        put(index, "orders", None, "a", 100 * number, START_MS)
        index.write()

    begins = [struct.unpack_from(">q", data, 16)[0] for data in files(disk, index)]
    assert begins == sorted(begins) == [0, 1900, 3800, 5700]
