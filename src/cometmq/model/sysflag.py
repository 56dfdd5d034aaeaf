"""The bits of a message's system flag.

Rules kept here:
- The flag stays a plain `int` everywhere: it is a hot field, and bits that we do not know must survive.
- A compression type of 0 means zlib: clients older than the type bits wrote none.
- The host bits follow from the addresses when a record is written, never from a client's flag.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from cometmq.model.errors import ProtocolError

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2
TRANSACTION_MASK: Final = 0xC
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
HOST_V6_MASK: Final = BORN_HOST_V6 | STORE_HOST_V6
NEED_UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80
COMPRESSION_TYPE_MASK: Final = 0x700
_COMPRESSION_TYPE_SHIFT: Final = 8


class TransactionType(IntEnum):
    """The transaction bits."""

    NONE = 0x0
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC


class CompressionType(IntEnum):
    """The algorithm of a compressed body: the values of the three type bits."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def transaction_type(sys_flag: int) -> TransactionType:
    return TransactionType(sys_flag & TRANSACTION_MASK)


def with_transaction_type(sys_flag: int, kind: TransactionType) -> int:
    return sys_flag & ~TRANSACTION_MASK | kind


def is_compressed(sys_flag: int) -> bool:
    return sys_flag & COMPRESSED != 0


def compression_type(sys_flag: int) -> CompressionType:
    """Returns the algorithm of the type bits; ask `is_compressed` first."""
    value = (sys_flag & COMPRESSION_TYPE_MASK) >> _COMPRESSION_TYPE_SHIFT
    if value == 0:
        return CompressionType.ZLIB
    try:
        return CompressionType(value)
    except ValueError:
        raise ProtocolError(
            f"compression type {value} in sysFlag {sys_flag:#x} is none of 1 LZ4, 2 ZSTD, 3 or 0 ZLIB"
        ) from None


def with_compression(sys_flag: int, kind: CompressionType) -> int:
    return sys_flag & ~COMPRESSION_TYPE_MASK | COMPRESSED | kind << _COMPRESSION_TYPE_SHIFT


def without_compression(sys_flag: int) -> int:
    """Returns the flag after decompression. The type bits stay, as in Java's client."""
    return sys_flag & ~COMPRESSED
