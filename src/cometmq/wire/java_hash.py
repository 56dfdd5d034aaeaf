"""The hash that Java gives a string: it stands in queue entries for tags and in the index for keys.

Rules kept here:
- The value is Java's for every string: over UTF-16 units, `h = 31 * h + unit`, as a signed 32-bit number.
- The hash of a longer string follows from that of its beginning (`extend_hash`), so that one beginning is
  hashed once for many strings.

The sum is left to the interpreter's own number parser: a string of bytes is a number in base 31 whose digits
are too large, and splitting each byte into quotient and remainder gives two numbers with proper digits. That
takes a third of the time of adding up products.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_BASE: Final = 31
_MODULUS: Final = 1 << 32
_MASK: Final = _MODULUS - 1
_SIGN: Final = 1 << 31
_DIGITS: Final = b"0123456789abcdefghijklmnopqrstu"
_QUOTIENTS: Final = bytes(_DIGITS[byte // _BASE] for byte in range(256))
_REMAINDERS: Final = bytes(_DIGITS[byte % _BASE] for byte in range(256))

_PIECE: Final = 256
"""How many bytes are hashed at a time: parsing takes quadratic time, and refuses very long numbers."""
_POWERS: Final = tuple(pow(_BASE, exponent, _MODULUS) for exponent in range(_PIECE + 1))

_CACHED_TAGS: Final = 4096
_CACHED_TAGS_LENGTH: Final = 64


def java_hash(text: str) -> int:
    """What `hashCode()` of this string is in Java."""
    return extend_hash(0, text)


def extend_hash(beginning: int, text: str) -> int:
    """The hash of a string whose beginning has the hash `beginning` and which goes on with `text`."""
    try:
        units = text.encode("latin-1")
    except UnicodeEncodeError:
        return _extend_wide(beginning, text)
    length = len(units)
    if not 0 < length <= _PIECE:
        return _signed(_extend_long(beginning, units))
    value = (
        beginning * _POWERS[length]
        + int(units.translate(_QUOTIENTS), _BASE) * _BASE
        + int(units.translate(_REMAINDERS), _BASE)
    ) & _MASK
    return value - _MODULUS if value >= _SIGN else value


def tags_code(tags: str) -> int:
    """What a queue entry says about a message's tags: the hash, which 64 bits hold with its sign."""
    return _cached_hash(tags) if len(tags) <= _CACHED_TAGS_LENGTH else java_hash(tags)


def _extend_wide(beginning: int, text: str) -> int:
    """The same for a string with units above 255, whose high and low bytes are hashed apart."""
    units = text.encode("utf-16-be", "surrogatepass")
    # The sum is linear: the high bytes count 256 times, and the beginning only once.
    return _signed(256 * _extend_long(0, units[0::2]) + _extend_long(beginning, units[1::2]))


def _extend_long(beginning: int, units: bytes) -> int:
    """Hash piece by piece; the result still has to be made a signed number."""
    value = beginning
    for start in range(0, len(units), _PIECE):
        piece = units[start : start + _PIECE]
        value = (
            value * _POWERS[len(piece)]
            + int(piece.translate(_QUOTIENTS), _BASE) * _BASE
            + int(piece.translate(_REMAINDERS), _BASE)
        ) & _MASK
    return value


def _signed(value: int) -> int:
    value &= _MASK
    return value - _MODULUS if value >= _SIGN else value


_cached_hash: Final = lru_cache(_CACHED_TAGS)(java_hash)
