"""Frames come out of a byte stream whole, in order and unharmed, in any chunks; what breaks it is refused."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.model.errors import FramingError, HeaderError
from cometmq.wire.frame.framing import JSON, MAX_FRAME_BYTES, ROCKETMQ, Frame, FrameSplitter, pack_head

Parts = tuple[int, bytes, bytes]

FRAMES = st.lists(
    st.tuples(st.sampled_from([JSON, ROCKETMQ, 7]), st.binary(max_size=40), st.binary(max_size=60)),
    max_size=8,
)


def whole(parts: Parts) -> bytes:
    kind, header, body = parts
    return pack_head(kind, header, len(body)) + body


def copied(frame: Frame) -> Parts:
    return frame.serialize_type, bytes(frame.header), bytes(frame.body)


def drained(splitter: FrameSplitter) -> list[Frame]:
    frames = []
    while (frame := splitter.next_frame()) is not None:
        frames.append(frame)
    return frames


def chunks(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@given(frames=FRAMES, cuts=st.lists(st.integers(min_value=0), max_size=12))
def test_any_chunking_gives_the_same_frames(frames: list[Parts], cuts: list[int]) -> None:
    """Also the views handed out first are unharmed by what is fed later."""
    splitter = FrameSplitter()
    found: list[Frame] = []
    for chunk in chunks(b"".join(map(whole, frames)), cuts):
        splitter.feed(chunk)
        found += drained(splitter)
    assert [copied(frame) for frame in found] == frames
    assert splitter.buffered_bytes == 0


@given(
    frames=FRAMES,
    cuts=st.lists(st.integers(min_value=0), max_size=12),
    takes=st.lists(st.integers(min_value=0, max_value=3), min_size=13, max_size=13),
)
def test_frames_that_wait_while_more_arrives_keep_their_order(
    frames: list[Parts], cuts: list[int], takes: list[int]
) -> None:
    """A reader that stops half-way, because its peer does not read, finds everything when it goes on."""
    splitter = FrameSplitter()
    stream = b"".join(map(whole, frames))
    found: list[Frame] = []
    fed = 0
    for chunk, take in zip(chunks(stream, cuts), takes, strict=False):
        splitter.feed(chunk)
        fed += len(chunk)
        for _ in range(take):
            frame = splitter.next_frame()
            if frame is not None:
                found.append(frame)
        assert splitter.buffered_bytes == fed - sum(len(whole(copied(frame))) for frame in found)
    found += drained(splitter)
    assert [copied(frame) for frame in found] == frames


@given(
    frames=st.lists(
        st.tuples(
            st.sampled_from([JSON, JSON, ROCKETMQ]), st.sampled_from([b"ab", b"abc", b"a", b"b"]), st.binary()
        ),
        max_size=12,
    ),
    cuts=st.lists(st.integers(min_value=0), max_size=4),
    most=st.integers(min_value=0, max_value=4),
)
def test_frames_that_begin_alike_can_be_taken_together(
    frames: list[Parts], cuts: list[int], most: int
) -> None:
    """None of them is skipped, and no other is among them."""
    splitter = FrameSplitter()
    found: list[Parts] = []
    for chunk in chunks(b"".join(map(whole, frames)), cuts):
        splitter.feed(chunk)
        while (frame := splitter.next_frame()) is not None:
            found.append(copied(frame))
            together = splitter.next_alike(b"ab", most, 2)
            assert len(together) <= most
            assert all(header == b"ab" for header, _ in together)
            found += [(JSON, header, bytes(body)) for header, body in together]
    assert found == frames
    assert splitter.buffered_bytes == 0


def test_what_is_broken_is_not_taken_together_with_what_is_not() -> None:
    """It is refused when its turn comes."""
    splitter = FrameSplitter()
    good = whole((JSON, b"ab", b""))
    splitter.feed(good + good + (8).to_bytes(4, "big") + (9).to_bytes(4, "big") + b"ab" + bytes(20))
    assert splitter.next_frame() is not None
    assert len(splitter.next_alike(b"ab", 10, 100)) == 1
    with pytest.raises(FramingError, match="does not fit"):
        splitter.next_frame()


@given(frames=FRAMES, tail=st.integers(min_value=0, max_value=20))
def test_an_incomplete_frame_is_held_and_counted(frames: list[Parts], tail: int) -> None:
    splitter = FrameSplitter()
    splitter.feed(b"".join(map(whole, frames)) + whole((JSON, b"header", b"body of 15 byte"))[:tail])
    assert [copied(frame) for frame in drained(splitter)] == frames
    assert splitter.buffered_bytes == tail


@pytest.mark.parametrize("length", [MAX_FRAME_BYTES - 3, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_length_over_the_limit_is_refused_after_its_four_bytes(length: int) -> None:
    splitter = FrameSplitter()
    data = length.to_bytes(4, "big")
    for position in range(3):
        splitter.feed(data[position : position + 1])
        assert splitter.next_frame() is None
    splitter.feed(data[3:])
    with pytest.raises(FramingError, match="over the limit of 16777216"):
        splitter.next_frame()


def test_a_frame_of_exactly_the_limit_is_taken() -> None:
    splitter = FrameSplitter(max_frame_bytes=100)
    splitter.feed(whole((JSON, b"h" * 10, b"b" * 82)))
    frame = splitter.next_frame()
    assert frame is not None
    assert len(frame.body) == 82
    splitter.feed((97).to_bytes(4, "big"))
    with pytest.raises(FramingError, match="101 bytes is over the limit of 100"):
        splitter.next_frame()


@pytest.mark.parametrize("length", [0, 1, 3])
@pytest.mark.parametrize("rest", [b"", b"\x00\x00\x00\x00"])
def test_a_length_without_room_for_the_header_mark_is_refused(length: int, rest: bytes) -> None:
    splitter = FrameSplitter()
    splitter.feed(length.to_bytes(4, "big") + rest)
    with pytest.raises(FramingError):
        splitter.next_frame()


@pytest.mark.parametrize("chunk_bytes", [1, 3, 8])
def test_a_header_longer_than_its_frame_is_refused_after_eight_bytes(chunk_bytes: int) -> None:
    splitter = FrameSplitter()
    data = (20).to_bytes(4, "big") + (17).to_bytes(4, "big")
    *first, last = chunks(data, range(0, len(data), chunk_bytes))
    for chunk in first:
        splitter.feed(chunk)
        assert splitter.next_frame() is None
    splitter.feed(last)
    with pytest.raises(FramingError, match="a header of 17 bytes does not fit a frame of 20"):
        splitter.next_frame()


def test_the_answers_to_sound_frames_before_a_broken_one_can_be_given() -> None:
    splitter = FrameSplitter()
    splitter.feed(whole((JSON, b"{}", b"")) + b"\xff" * 8)
    assert splitter.next_frame() is not None
    with pytest.raises(FramingError):
        splitter.next_frame()


def test_a_large_frame_in_tiny_chunks_takes_linear_time() -> None:
    """Four times the frame may take ten times as long; quadratic work would take sixteen."""

    def seconds(body_bytes: int) -> float:
        splitter = FrameSplitter()
        data = whole((JSON, b"{}", bytes(body_bytes)))
        best = float("inf")
        for _ in range(5):
            started = time.thread_time()
            for start in range(0, len(data), 16):
                splitter.feed(data[start : start + 16])
                frame = splitter.next_frame()
            best = min(best, time.thread_time() - started)
            assert frame is not None
            assert len(frame.body) == body_bytes
        return best

    seconds(100_000)
    assert seconds(2_000_000) < 10 * max(seconds(500_000), 0.01)


@settings(max_examples=300)
@given(data=st.lists(st.binary(max_size=30), max_size=20))
def test_arbitrary_bytes_give_frames_or_a_framing_error(data: list[bytes]) -> None:
    splitter = FrameSplitter(max_frame_bytes=1000)
    try:
        for chunk in data:
            splitter.feed(chunk)
            drained(splitter)
    except FramingError:
        return
    assert splitter.buffered_bytes <= sum(map(len, data))


def test_a_header_too_long_for_its_three_bytes_is_not_written() -> None:
    with pytest.raises(HeaderError):
        pack_head(JSON, bytes(2**24), 0)
    assert pack_head(JSON, bytes(2**24 - 1), 0)[4:8] == b"\x00\xff\xff\xff"
