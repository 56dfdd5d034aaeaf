"""Compressed message bodies: zlib, LZ4 frames and Zstandard.

Rules kept here:
- What is written, every Java client can read: LZ4 in independent blocks, zlib with its header.
- What is read may come from anybody. No body grows beyond the limit that the caller gives, however small it
  was on the wire, and one that breaks off in the middle is an error, never a shorter body.
- LZ4 and Zstandard bodies may consist of several frames; what follows the end of a zlib body is ignored.
  Java's streams read them so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

import lz4.frame
import zstandard
from zlib_ng import zlib_ng as zlib

from cometmq.model.errors import ProtocolError
from cometmq.model.sysflag import CompressionType

DEFAULT_LEVEL: Final = 5
MAX_BODY_SIZE: Final = 64 * 1024 * 1024
"""The decompressed size that is accepted unless the caller says otherwise: four times the largest frame."""

# A Zstandard block of 4 bytes can stand for 128 KiB, and the library hands out everything that the given
# input makes: input in slices of this size keeps what may be made beyond the limit to 16 MiB.
_ZSTD_SLICE: Final = 512
_ZlibError: Final = cast("type[Exception]", zlib.error)  # which its stub says is an exception itself

Body = bytes | bytearray | memoryview


class CompressionError(ProtocolError):
    """A body that says it is compressed and cannot be decompressed."""


def compress(body: Body, kind: CompressionType, level: int = DEFAULT_LEVEL) -> bytes:
    """The body compressed; `level` is the algorithm's own and means nothing to LZ4."""
    if kind is CompressionType.LZ4:
        compressed: bytes = lz4.frame.compress(
            body, block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False, store_size=False
        )
        return compressed
    if kind is CompressionType.ZSTD:
        return zstandard.ZstdCompressor(level=level).compress(body)
    return zlib.compress(body, level)


def decompress(body: Body, kind: CompressionType, max_size: int = MAX_BODY_SIZE) -> bytes:
    """The body as it was before it was compressed, at most `max_size` bytes of it."""
    try:
        decompressed = _DECOMPRESSORS[kind](body, max_size)
    except (_ZlibError, zstandard.ZstdError, RuntimeError) as error:
        raise CompressionError(f"a body of {len(body)} bytes is not valid {kind.name}: {error}") from None
    if decompressed is None:
        raise CompressionError(
            f"a body of {len(body)} bytes breaks off before the end of its {kind.name} data"
        )
    if len(decompressed) > max_size:
        raise CompressionError(
            f"a body of {len(body)} bytes gives more than the limit of {max_size} bytes with {kind.name}"
        )
    return decompressed


# Each of these gives None for a body that breaks off, and may stop when it has more than `max_size` bytes.


def _decompress_zlib(body: Body, max_size: int) -> bytes | None:
    stream = zlib.decompressobj()
    decompressed = stream.decompress(body, max_size + 1)
    return decompressed if stream.eof or len(decompressed) > max_size else None


def _decompress_lz4(body: Body, max_size: int) -> bytes | None:
    decompressed: bytes = b""
    rest: Body | None = body
    while rest:
        stream = lz4.frame.LZ4FrameDecompressor()
        decompressed += stream.decompress(rest, max_length=max_size + 1 - len(decompressed))
        if len(decompressed) > max_size:
            return decompressed
        if not stream.eof:
            return None
        rest = stream.unused_data
    return decompressed if body else None


def _decompress_zstd(body: Body, max_size: int) -> bytes | None:
    view = memoryview(body)
    chunks: list[bytes] = []
    size = position = 0
    stream = None
    while position < len(view):
        if stream is None:
            stream = zstandard.ZstdDecompressor().decompressobj()
        chunk = stream.decompress(view[position : position + _ZSTD_SLICE])
        position += min(_ZSTD_SLICE, len(view) - position)
        chunks.append(chunk)
        size += len(chunk)
        if size > max_size:
            break
        if stream.eof:
            position -= len(stream.unused_data)
            stream = None
    else:
        if stream is not None or not len(view):
            return None
    return b"".join(chunks)


_DECOMPRESSORS: Final[dict[CompressionType, Callable[[Body, int], bytes | None]]] = {
    CompressionType.LZ4: _decompress_lz4,
    CompressionType.ZSTD: _decompress_zstd,
    CompressionType.ZLIB: _decompress_zlib,
}
