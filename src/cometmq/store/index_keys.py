"""The hashes under which the index knows the keys of messages.

Rules kept here:
- What is hashed is `topic#key`; the topic's part is hashed once for many keys. The hash is Java's, made
  positive; the one number for which Java has no positive one counts as 0.
- A message has its unique key first, then each of its keys, which have a space between each two.

The sum is left to the interpreter's own number parser, as in `wire/java_hash.py`, and here to that of bytes.
Nearly every message has a unique key, of digits and the letters from A to F: a number in base 31 whose digits
are all too large by the same. So it takes one look at a table, and half of the time that other keys take.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cometmq.model.message_properties import KEY_SEPARATOR
from cometmq.wire.java_hash import extend_hash

_BASE: Final = 31
_MODULUS: Final = 1 << 32
_MASK: Final = _MODULUS - 1
_SIGN: Final = 1 << 31
_LONGEST: Final = 64

_EXCESS: Final = 40
_DIGITS: Final = b"0123456789abcdefghijklmnopqrstu"
_TO_DIGITS: Final = bytes(
    _DIGITS[byte - _EXCESS] if _EXCESS <= byte < _EXCESS + _BASE else ord("!") for byte in range(256)
)
"""Of the characters from ( to F, the digit that is left when the excess is taken away; others give none."""
_POWERS: Final[tuple[int, ...]] = tuple(pow(_BASE, length, _MODULUS) for length in range(_LONGEST + 1))
_EXCESSES: Final[tuple[int, ...]] = tuple(
    _EXCESS * sum(_BASE**place for place in range(length)) % _MODULUS for length in range(_LONGEST + 1)
)
_QUOTIENTS: Final = bytes(_DIGITS[byte // _BASE] for byte in range(256))
_REMAINDERS: Final = bytes(_DIGITS[byte % _BASE] for byte in range(256))
_SEPARATOR: Final = KEY_SEPARATOR.encode()


def key_hash(beginning: int, key: bytes) -> int:
    """The hash under which a key is found; `beginning` is the Java hash of the topic and a `#`."""
    if key.isupper():
        try:
            length = len(key)
            value = (
                beginning * _POWERS[length] + _EXCESSES[length] + int(key.translate(_TO_DIGITS), _BASE)
            ) & _MASK
        except (IndexError, ValueError):  # it is too long, or has a character that is no such digit
            value = _any_hash(beginning, key)
    else:
        value = _any_hash(beginning, key)
    if value < _SIGN:
        return value
    return _MODULUS - value if value > _SIGN else 0


def hashes_of_all(beginning: int, keys: Sequence[bytes]) -> list[int]:
    """The hashes of many keys of one topic, which is quicker if they have one length and only such digits."""
    length = len(keys[0])
    if length > _LONGEST or len(set(map(len, keys))) > 1:
        return [key_hash(beginning, key) for key in keys]
    digits = b"".join(keys).translate(_TO_DIGITS)
    base, ends = beginning * _POWERS[length] + _EXCESSES[length], range(length, len(digits) + 1, length)
    try:
        values = [(base + int(digits[end - length : end], _BASE)) & _MASK for end in ends]
    except ValueError:
        return [key_hash(beginning, key) for key in keys]
    return [value if value < _SIGN else (_MODULUS - value) % _SIGN for value in values]


def _any_hash(beginning: int, key: bytes) -> int:
    """The same for keys of all kinds, as a number without a sign."""
    length = len(key)
    if not 0 < length <= _LONGEST or not key.isascii():
        return extend_hash(beginning, key.decode("utf-8", "replace")) & _MASK
    tens, ones = int(key.translate(_QUOTIENTS), _BASE), int(key.translate(_REMAINDERS), _BASE)
    return (beginning * _POWERS[length] + tens * _BASE + ones) & _MASK


def key_hashes(beginning: int, unique_key: bytes | None, keys: bytes | None) -> list[int]:
    """The hashes of all keys of a message."""
    hashes = [key_hash(beginning, unique_key)] if unique_key else []
    if keys:
        for key in keys.split(_SEPARATOR):
            if key:
                hashes.append(key_hash(beginning, key))  # noqa: PERF401 - a comprehension is slower here
    return hashes
