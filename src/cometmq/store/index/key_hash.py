"""Key hashes: what the index stores in place of the keys of messages.

Rules kept here:
- The hash is Java's, of `topic#key`, made positive; the one number without a positive counterpart counts as
  0. The topic's part is hashed once for many keys.
- A message has its unique key first, then each of its keys, separated by spaces.

The interpreter's number parser computes the sum, as in `wire/java_hash.py`. Nearly every unique key consists
of digits and the letters A to F: a number in base 31 whose digits are all too large by 40. One table look-up
corrects that, and takes half the time of other keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from cometmq.model.message_properties import KEY_SEPARATOR
from cometmq.store.dispatch_rules import Keyed
from cometmq.store.index.arrays import columns_of, key_hashes_of
from cometmq.wire.java_hash import extend_hash, java_hash

if TYPE_CHECKING:  # NumPy is no requirement of a broker
    from cometmq.store.index.arrays import Columns

_BASE: Final = 31
_MODULUS: Final = 1 << 32
_MASK: Final = _MODULUS - 1
_SIGN: Final = 1 << 31
_LONGEST: Final = 64
_REMEMBERED_TOPICS: Final = 10_000

_EXCESS: Final = 40
_DIGITS: Final = b"0123456789abcdefghijklmnopqrstu"
_TO_DIGITS: Final = bytes(
    _DIGITS[byte - _EXCESS] if _EXCESS <= byte < _EXCESS + _BASE else ord("!") for byte in range(256)
)
"""Maps the characters from ( to F to their base-31 digits, all others to an invalid one."""
_POWERS: Final[tuple[int, ...]] = tuple(pow(_BASE, length, _MODULUS) for length in range(_LONGEST + 1))
_EXCESSES: Final[tuple[int, ...]] = tuple(
    _EXCESS * sum(_BASE**digit for digit in range(length)) % _MODULUS for length in range(_LONGEST + 1)
)
_QUOTIENTS: Final = bytes(_DIGITS[byte // _BASE] for byte in range(256))
_REMAINDERS: Final = bytes(_DIGITS[byte % _BASE] for byte in range(256))
_SEPARATOR: Final = KEY_SEPARATOR.encode()

Entries = tuple[list[int], list[int], list[int]]
"""Hashes of keys, physical offsets and store times, by columns."""


def key_hash(beginning: int, key: bytes) -> int:
    """The hash of a key; `beginning` is the Java hash of the topic and a `#`."""
    if key.isupper():
        try:
            length = len(key)
            value = (
                beginning * _POWERS[length] + _EXCESSES[length] + int(key.translate(_TO_DIGITS), _BASE)
            ) & _MASK
        except (IndexError, ValueError):  # too long, or with another character
            value = _any_hash(beginning, key)
    else:
        value = _any_hash(beginning, key)
    if value < _SIGN:
        return value
    return _MODULUS - value if value > _SIGN else 0


def hashes_of_all(beginning: int, keys: Sequence[bytes]) -> list[int]:
    """The hashes of many keys of one topic."""
    values = _values_of(beginning, keys)
    return [key_hash(beginning, key) for key in keys] if values is None else _positive(values)


def hashes_of_each(beginnings: Sequence[int], keys: Sequence[bytes]) -> list[int]:
    """The hashes of many keys, each of a topic of its own."""
    values = _values_of(0, keys)
    if values is None:
        return list(map(key_hash, beginnings, keys))
    powers = {length: pow(_BASE, length, _MODULUS) for length in set(map(len, keys))}
    together = zip(beginnings, keys, values, strict=True)
    return _positive([beginning * powers[len(key)] + value & _MASK for beginning, key, value in together])


def _positive(values: Iterable[int]) -> list[int]:
    return [value if value < _SIGN else (_MODULUS - value) % _SIGN for value in values]


def _values_of(beginning: int, keys: Sequence[bytes]) -> list[int] | None:
    """The unsigned hashes of keys; None if they have to be hashed one by one.

    A common prefix, such as the address of a producer, is hashed once. The rest has to be digits and letters
    from A to F.
    """
    lengths = set(map(len, keys))
    shortest, longest = min(lengths), max(lengths)
    same = _common_length(min(keys), max(keys), shortest - 1)
    prefix = keys[0][:same]
    if not prefix.isascii() or longest - same > _LONGEST:
        return None
    start = extend_hash(beginning, prefix.decode())
    bases = {each: start * _POWERS[each - same] + _EXCESSES[each - same] for each in lengths}
    try:
        if shortest == longest:
            base, digits = bases[longest], b"".join(keys).translate(_TO_DIGITS)
            return [
                base + int(digits[end - longest + same : end], _BASE) & _MASK
                for end in range(longest, len(digits) + 1, longest)
            ]
        return [bases[len(key)] + int(key[same:].translate(_TO_DIGITS), _BASE) & _MASK for key in keys]
    except ValueError:  # the rest has another character
        return None


def _common_length(one: bytes, other: bytes, most: int) -> int:
    """The length of the common prefix, at most `most`."""
    if one[:most] == other[:most]:
        return max(most, 0)
    return next(at for at in range(most) if one[at] != other[at])


def _any_hash(beginning: int, key: bytes) -> int:
    """The unsigned hash of any key."""
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


class KeyHashes:
    """Hashes the keys of messages, and caches the hash of each topic."""

    def __init__(self) -> None:
        self._beginnings: dict[str, int] = {}

    def beginning(self, topic: str) -> int:
        """The hash of a topic, from which those of its keys continue."""
        beginning = self._beginnings.get(topic)
        if beginning is None:
            if len(self._beginnings) >= _REMEMBERED_TOPICS:
                self._beginnings.clear()
            beginning = self._beginnings[topic] = java_hash(f"{topic}#")
        return beginning

    def entries_of(self, records: Sequence[Keyed]) -> Entries:
        """The entries of records, in their order."""
        topics, unique_keys, further_keys, offsets, times = zip(*records, strict=True)
        if not all(unique_keys):
            return self._one_by_one(records)
        hashes_of: Callable[[Sequence[bytes]], list[int]]
        if topics.count(topics[0]) == len(topics):
            hashes_of = partial(hashes_of_all, self.beginning(topics[0]))
        else:
            hashes_of = partial(hashes_of_each, list(map(self.beginning, topics)))
        if not any(further_keys):
            return hashes_of(unique_keys), list(offsets), list(times)
        if all(further_keys) and _SEPARATOR not in b"".join(further_keys):
            hashes = hashes_of(unique_keys), hashes_of(further_keys)
            return _mixed(*hashes), _mixed(offsets, offsets), _mixed(times, times)
        return self._one_by_one(records)

    def columns_of(self, records: Sequence[Keyed]) -> Columns | None:
        """The entries of records by columns of NumPy, if their keys are alike; otherwise None."""
        topics, unique_keys, further_keys, offsets, times = zip(*records, strict=True)
        if not all(unique_keys) or topics.count(topics[0]) < len(topics):
            return None
        key_columns = [unique_keys]
        if any(further_keys):
            if not all(further_keys) or _SEPARATOR in b"".join(further_keys):
                return None
            key_columns.append(further_keys)
        beginning = self.beginning(topics[0])
        hashes = []
        for keys in key_columns:
            found = key_hashes_of(beginning, keys)
            if found is None:
                return None
            hashes.append(found)
        return columns_of(hashes, offsets, times)

    def _one_by_one(self, records: Sequence[Keyed]) -> Entries:
        hashes: list[int] = []
        offsets: list[int] = []
        times: list[int] = []
        for topic, unique_key, keys, physical_offset, store_time_ms in records:
            found = key_hashes(self.beginning(topic), unique_key, keys)
            hashes += found
            offsets += [physical_offset] * len(found)
            times += [store_time_ms] * len(found)
        return hashes, offsets, times


def _mixed(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Interleave two columns."""
    mixed = [0] * (2 * len(one))
    mixed[::2], mixed[1::2] = one, other
    return mixed
