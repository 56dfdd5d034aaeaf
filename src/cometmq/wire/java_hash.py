"""Java's `String.hashCode`: queue entries have it for tags, the index for keys.

Rules kept here:
- `h = 31 * h + unit` over UTF-16 units, as a signed 32-bit number.
- The hash of a longer string follows from that of its beginning (`extend_hash`), so that one beginning is
  hashed once for many strings.

`int` computes the sum: a string of bytes is a number in base 31 whose digits are too large, and splitting
each byte into quotient and remainder makes two numbers with proper digits. That takes a third of the time of
a loop.
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

_CHUNK: Final = 256
"""Bytes hashed at a time: parsing takes quadratic time, and refuses very long numbers."""
_POWERS: Final = tuple(pow(_BASE, exponent, _MODULUS) for exponent in range(_CHUNK + 1))

_CACHED_TAGS: Final = 4096
_CACHED_TAGS_LENGTH: Final = 64


def java_hash(text: str) -> int:
    return extend_hash(0, text)


def extend_hash(beginning: int, text: str) -> int:
    """Returns the hash of a string that goes on with `text` after a beginning with this hash."""
    try:
        units = text.encode("latin-1")
    except UnicodeEncodeError:
        return _extend_wide(beginning, text)
    length = len(units)
    if not 0 < length <= _CHUNK:
        return _signed(_extend_long(beginning, units))
    value = (
        beginning * _POWERS[length]
        + int(units.translate(_QUOTIENTS), _BASE) * _BASE
        + int(units.translate(_REMAINDERS), _BASE)
    ) & _MASK
    return value - _MODULUS if value >= _SIGN else value


def tags_code(tags: str) -> int:
    """Returns the tags code of a queue entry: the hash, sign-extended to 64 bits."""
    return _cached_hash(tags) if len(tags) <= _CACHED_TAGS_LENGTH else java_hash(tags)


def _extend_wide(beginning: int, text: str) -> int:
    """Hash a string with units above 255: high and low bytes apart."""
    units = text.encode("utf-16-be", "surrogatepass")
    # The sum is linear: the high bytes count 256 times, and the beginning only once.
    return _signed(256 * _extend_long(0, units[0::2]) + _extend_long(beginning, units[1::2]))


def _extend_long(beginning: int, units: bytes) -> int:
    """Hash in chunks; the result is unsigned."""
    value = beginning
    for start in range(0, len(units), _CHUNK):
        chunk = units[start : start + _CHUNK]
        value = (
            value * _POWERS[len(chunk)]
            + int(chunk.translate(_QUOTIENTS), _BASE) * _BASE
            + int(chunk.translate(_REMAINDERS), _BASE)
        ) & _MASK
    return value


def _signed(value: int) -> int:
    value &= _MASK
    return value - _MODULUS if value >= _SIGN else value


_cached_hash: Final = lru_cache(_CACHED_TAGS)(java_hash)
