"""Compressed bodies."""

import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.model.sysflag import CompressionType
from cometmq.wire.record.compression import CompressionError, compress, decompress

kinds = pytest.mark.parametrize("kind", list(CompressionType))
BODY = b"a body that repeats itself, " * 500


def body_or_error(data: bytes | bytearray, kind: CompressionType, max_size: int) -> bytes | CompressionError:
    try:
        return decompress(data, kind, max_size)
    except CompressionError as error:
        return error


@kinds
@settings(deadline=None, max_examples=30)
@given(body=st.binary(max_size=2000), repeats=st.integers(1, 50))
def test_a_body_comes_back_as_it_was(kind: CompressionType, body: bytes, repeats: int) -> None:
    """P6"""
    assert decompress(compress(body * repeats, kind), kind) == body * repeats


@kinds
def test_a_body_may_be_a_view(kind: CompressionType) -> None:
    assert decompress(memoryview(compress(memoryview(BODY), kind)), kind) == BODY


@kinds
def test_a_body_as_large_as_the_limit_is_accepted_and_one_byte_more_is_not(kind: CompressionType) -> None:
    compressed = compress(BODY, kind)

    assert decompress(compressed, kind, max_size=len(BODY)) == BODY
    with pytest.raises(CompressionError, match=f"more than the limit of {len(BODY) - 1} bytes"):
        decompress(compressed, kind, max_size=len(BODY) - 1)


@kinds
def test_a_small_body_that_would_become_huge_stops_at_the_limit(kind: CompressionType) -> None:
    bomb = compress(bytes(128 * 1024 * 1024), kind)

    with pytest.raises(CompressionError, match="more than the limit"):
        decompress(bomb, kind, max_size=1024)


def test_a_zstandard_header_that_lies_about_its_size_allocates_nothing() -> None:
    honest = zstandard.ZstdCompressor(level=5).compress(bytes(300))
    lying = bytearray(honest)
    lying[4] = 0xE0  # an 8-byte content size follows, the window is as large as the content
    lying[5:7] = (2**60).to_bytes(8, "little")

    with pytest.raises(CompressionError):
        decompress(bytes(lying), CompressionType.ZSTD)


@kinds
def test_a_body_that_breaks_off_anywhere_is_an_error(kind: CompressionType) -> None:
    compressed = compress(b"short body", kind)

    for length in range(len(compressed)):
        with pytest.raises(CompressionError):
            decompress(compressed[:length], kind)


@kinds
@settings(deadline=None)
@given(data=st.binary(max_size=300))
def test_bytes_that_are_not_compressed_are_an_error_or_a_body(kind: CompressionType, data: bytes) -> None:
    outcome = body_or_error(data, kind, max_size=1000)
    assert kind.name in str(outcome) if isinstance(outcome, CompressionError) else len(outcome) <= 1000


@kinds
@settings(deadline=None)
@given(position=st.integers(min_value=0), value=st.integers(0, 255))
def test_a_changed_byte_never_surfaces_as_another_exception(
    kind: CompressionType, position: int, value: int
) -> None:
    changed = bytearray(compress(BODY, kind))
    changed[position % len(changed)] = value
    outcome = body_or_error(changed, kind, max_size=100_000)
    assert kind.name in str(outcome) if isinstance(outcome, CompressionError) else len(outcome) <= 100_000


@pytest.mark.parametrize("kind", [CompressionType.LZ4, CompressionType.ZSTD])
def test_several_frames_are_one_body(kind: CompressionType) -> None:
    frames = compress(b"first ", kind) + compress(BODY, kind) + compress(b" last", kind)

    assert decompress(frames, kind) == b"first " + BODY + b" last"


@pytest.mark.parametrize("kind", [CompressionType.LZ4, CompressionType.ZSTD])
def test_several_frames_share_one_limit(kind: CompressionType) -> None:
    with pytest.raises(CompressionError, match="more than the limit"):
        decompress(compress(BODY, kind) * 2, kind, max_size=len(BODY) * 2 - 1)


def test_a_zlib_body_may_be_followed_by_anything() -> None:
    assert decompress(zlib.compress(BODY) + b"rest", CompressionType.ZLIB) == BODY


def test_lz4_is_written_in_independent_blocks_which_java_needs() -> None:
    frame = lz4.frame.get_frame_info(compress(BODY, CompressionType.LZ4))

    assert frame["block_linked"] is False
    assert compress(BODY, CompressionType.LZ4).startswith(bytes.fromhex("04224d1860"))


def test_the_level_is_passed_on() -> None:
    assert compress(BODY, CompressionType.ZLIB, level=0) != compress(BODY, CompressionType.ZLIB, level=9)
