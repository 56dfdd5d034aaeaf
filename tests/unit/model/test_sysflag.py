"""The bits of the system flag."""

import pytest

from cometmq.model import sysflag
from cometmq.model.errors import ProtocolError
from cometmq.model.sysflag import CompressionType, TransactionType

UNKNOWN_BIT = 0x10000


@pytest.mark.parametrize(
    ("bits", "kind"),
    [
        (0x0, TransactionType.NONE),
        (0x4, TransactionType.PREPARED),
        (0x8, TransactionType.COMMIT),
        (0xC, TransactionType.ROLLBACK),
    ],
)
def test_the_transaction_type_is_read_and_replaced_without_touching_other_bits(
    bits: int, kind: TransactionType
) -> None:
    """B6"""
    flag = UNKNOWN_BIT | sysflag.COMPRESSED | bits

    assert sysflag.transaction_type(flag) is kind
    for other in TransactionType:
        assert sysflag.with_transaction_type(flag, other) == UNKNOWN_BIT | sysflag.COMPRESSED | other


@pytest.mark.parametrize(
    ("bits", "kind"),
    [
        (0x000, CompressionType.ZLIB),
        (0x100, CompressionType.LZ4),
        (0x200, CompressionType.ZSTD),
        (0x300, CompressionType.ZLIB),
    ],
)
def test_the_compression_type_is_read_and_none_means_zlib(bits: int, kind: CompressionType) -> None:
    assert sysflag.compression_type(sysflag.COMPRESSED | bits) is kind


@pytest.mark.parametrize("bits", [0x400, 0x500, 0x600, 0x700])
def test_an_unknown_compression_type_is_a_protocol_error_that_names_it(bits: int) -> None:
    with pytest.raises(ProtocolError, match=str(bits >> 8)):
        sysflag.compression_type(sysflag.COMPRESSED | bits)


@pytest.mark.parametrize("kind", list(CompressionType))
def test_marking_a_body_compressed_replaces_an_older_type(kind: CompressionType) -> None:
    marked = sysflag.with_compression(UNKNOWN_BIT | sysflag.COMPRESSION_TYPE_MASK, kind)

    assert sysflag.is_compressed(marked)
    assert sysflag.compression_type(marked) is kind
    assert marked & UNKNOWN_BIT


def test_after_decompression_only_the_compressed_bit_is_gone() -> None:
    plain = sysflag.without_compression(sysflag.with_compression(UNKNOWN_BIT, CompressionType.ZLIB))

    assert not sysflag.is_compressed(plain)
    assert plain == UNKNOWN_BIT | 0x300
