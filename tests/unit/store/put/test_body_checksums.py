"""Checksums of many bodies at once: the same as one by one."""

from __future__ import annotations

from zlib import crc32

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cometmq.store.put.bulk import body_checksums, even_checksums


def checksums(bodies: list[bytes]) -> list[int]:
    """Of bodies that lie between others."""
    content = b"<" + b"><".join(bodies) + b">"
    lengths = np.array([len(body) for body in bodies], np.int64)
    ends = np.cumsum(lengths + 2) - 1
    return list(map(int, body_checksums(np.frombuffer(content, np.uint8), ends - lengths, ends)))


def one_by_one(bodies: list[bytes]) -> list[int]:
    return [crc32(body) & 0x7FFFFFFF for body in bodies]


@given(st.lists(st.binary(min_size=1, max_size=12), max_size=60))
def test_bodies_of_several_lengths(bodies: list[bytes]) -> None:
    """S1"""
    assert checksums(bodies) == one_by_one(bodies)


def test_bodies_of_one_length_and_bodies_that_are_long() -> None:
    """S1"""
    for length in (1, 128, 1024, 1025, 5000):
        bodies = [bytes([number]) * length for number in range(40)]
        assert checksums(bodies) == one_by_one(bodies)
    mixed = [b"a" * 2000, *(b"%03d" % number for number in range(20)), b"b" * 3000, b"c"]
    assert checksums(mixed) == one_by_one(mixed)


def test_bodies_in_even_steps() -> None:
    """S1"""
    for length in (1, 128, 1024, 1025, 5000):
        bodies = [bytes([number]) * length for number in range(40)]
        content = b"".join(b"head" + body + b"end" for body in bodies)
        found = even_checksums(np.frombuffer(content, np.uint8), 4, length, 4 + length + 3)
        assert found.tolist() == one_by_one(bodies)
