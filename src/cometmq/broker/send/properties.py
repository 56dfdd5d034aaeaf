"""The properties of a message as Apache's broker stores them, byte for byte.

Apache reads the properties of a request into a hash map of 128 buckets, adds its own, and writes them in the
order of the buckets. That order depends on the names alone, so it is worked out once for each sequence of
names (its layout), and messages of a known layout are put together from their values.

Rules kept here:
- What Java's reader drops is dropped: an item without a name, a separator or a value. Of a name that comes
  twice the last value counts.
- Only text in which names and values alternate properly has a layout; all other text is read item by item.
- Tables are bounded; one that is full, because a producer invents names, begins anew.
- Half messages have layouts by queue, because their target is among their properties. Only a half message
  without anything else special has one; every other one, and every refusal, is left to `send.py`. A layout is
  worked out when its names are met for the second time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from cometmq.broker.settings import Settings
from cometmq.model.errors import MessageError
from cometmq.model.message_properties import (
    CRC32,
    DELAY,
    INNER_NUM,
    KEYS,
    ONCE,
    POP_CK,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRAN_MSG,
    TRANSACTION_ID,
    UNIQ_KEY,
    WAIT,
)
from cometmq.wire.java_hash import java_hash, tags_code

TIMER_PROPERTIES: Final = (TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC)
SPECIAL: Final = frozenset({DELAY, TRAN_MSG, POP_CK, INNER_NUM, ONCE, CRC32, *TIMER_PROPERTIES})
"""Properties with which a message is no plain one."""
_BUCKETS: Final = 128
_MAX_LAYOUTS: Final = 4096
_MAX_NAMES: Final = 64
_MAX_NAME_BYTES: Final = 4096
"""Working out the layout of more takes too long."""
_MAX_TAGS_LENGTH: Final = 64
_GAP: Final = "\x02\x01"  # stands in no name and no value
StoredProperties = tuple[bytes, int, bytes, bytes | None, bool]
"""Properties as they are stored, the hash of the tags, unique key, keys, and whether the sender wants to wait
until the message is safe. A plain tuple, because it is made and unpacked once a message."""
_codes: Final[dict[bytes, int]] = {}
"""The hashes of tags."""
_IS_HALF: Final = f"{TRAN_MSG}\x01true\x02".encode()
_OWN: Final = frozenset({TRANSACTION_ID, REAL_TOPIC, REAL_QUEUE_ID})
"""Properties that only half messages have."""
Queue = tuple[str, int]
"""Topic and queue that a half message belongs to."""


def _code_of(tags: bytes) -> int:
    code = tags_code(tags.decode("utf-8", "replace"))
    if len(tags) <= _MAX_TAGS_LENGTH:
        if len(_codes) >= _MAX_LAYOUTS:
            _codes.clear()
        _codes[tags] = code
    return code


def java_order(names: Iterable[str]) -> list[str]:
    """Names in the order in which a Java hash map gives them that they were put into one after the other."""
    return list(_ordered(tuple(dict.fromkeys(names))))


@lru_cache(_MAX_LAYOUTS)
def _ordered(known: tuple[str, ...]) -> list[str]:
    buckets = _BUCKETS
    while len(known) * 4 > buckets * 3:
        buckets *= 2

    def bucket(name: str) -> int:
        hashed = java_hash(name)
        return (hashed ^ (hashed & 0xFFFFFFFF) >> 16) & (buckets - 1)

    return sorted(known, key=bucket)


def stored_block(properties: Mapping[str, str]) -> bytes:
    """Properties as they are stored; a value may hold what separates names from values, as Java lets it.

    One that holds what ends a value would be read as further properties: raises `MessageError`.
    """
    text = "".join(f"{name}\x01{properties[name]}\x02" for name in java_order(properties))
    if text.count("\x02") != len(properties):
        raise MessageError("a property contains the separator 0x02; remove it")
    return text.encode("utf-8", "replace")


class PropertyLayout:
    """How properties with certain names are stored."""

    __slots__ = ("_keys", "_order", "_tags", "_template", "_unique_key", "_wait", "is_plain", "match")

    def __init__(
        self, names: Sequence[str], added: Mapping[str, str], copied: Mapping[str, str] = {}
    ) -> None:
        """`added` are properties with their values; `copied` have the values of others of these names."""
        positions = {name: index for index, name in enumerate(names, 1)}
        order = java_order([*names, *added, *copied])
        pairs = (f"{name}\x01{added.get(name, _GAP)}\x02" for name in order)
        self._template = "".join(pairs).replace("%", "%%").replace(_GAP, "%b").encode()
        named = [name for name in order if name not in added]
        self._order = [positions[copied.get(name, name)] for name in named]
        self._unique_key, self._keys, self._tags, self._wait = (
            named.index(name) if name in named else None for name in (UNIQ_KEY, KEYS, TAGS, WAIT)
        )
        pattern = b"".join(re.escape(name.encode()) + b"\x01([\x03-\xff]+)\x02" for name in names)
        self.match: Callable[[bytes], re.Match[bytes] | None] = re.compile(pattern).fullmatch
        """Finds the values in properties of this layout; None if they have another one."""
        self.is_plain = (
            UNIQ_KEY in positions
            and len(positions) == len(names)
            and "" not in positions
            and not SPECIAL & positions.keys()
            and not any(_GAP in name for name in names)
        )

    def read(self, block: bytes) -> StoredProperties | None:
        """The properties to store; None if they have another layout."""
        found = self.match(block)
        if found is None:
            return None
        order = self._order
        values = found.group(*order) if len(order) > 1 else (found[order[0]],)
        tags, keys, waits = self._tags, self._keys, self._wait
        return (
            self._template % values,
            0 if tags is None else _codes.get(values[tags]) or _code_of(values[tags]),
            values[self._unique_key or 0],
            None if keys is None else values[keys],
            waits is None or values[waits] != b"false",
        )


class PropertyLayouts:
    """The layouts that a broker has met; its own properties, `added`, are put into every message."""

    def __init__(self, added: Mapping[str, str]) -> None:
        self.added = {name: value for name, value in added.items() if value}
        self._layouts: dict[tuple[bytes, ...], PropertyLayout] = {}
        self._met: set[tuple[bytes, ...]] = set()

    def __len__(self) -> int:
        return len(self._layouts)

    def find(self, block: bytes) -> PropertyLayout | None:
        """The layout of plain properties; None if they are not plain, or if their names are new."""
        names = tuple(block.replace(b"\x02", b"\x01").split(b"\x01")[::2])
        layout = self._layouts.get(names) or self._learn(names)
        return layout if layout is not None and layout.is_plain else None

    def _learn(self, names: tuple[bytes, ...]) -> PropertyLayout | None:
        """The layout of names that were met before; names that never come again are not worth it.

        The last name has to be empty, because every pair ends in a separator.
        """
        if names[-1] or len(names) > _MAX_NAMES or sum(map(len, names)) > _MAX_NAME_BYTES:
            return None
        if names not in self._met:
            if len(self._met) >= _MAX_LAYOUTS:
                self._met.clear()
            self._met.add(names)
            return None
        if len(self._layouts) >= _MAX_LAYOUTS:
            self._layouts.clear()
        decoded = [name.decode("utf-8", "replace") for name in names[:-1]]
        layout = self._layouts[names] = PropertyLayout(decoded, self.added)
        return layout


def half_layout(
    names: list[str], added: Mapping[str, str], topic: str, queue_id: int
) -> PropertyLayout | None:
    """The layout of half messages of a queue with these names; None if they are special."""
    known = set(names)
    if len(names) > _MAX_NAMES or len(known) < len(names) or "" in known:
        return None
    if known & SPECIAL != {TRAN_MSG} or UNIQ_KEY not in known or known & _OWN:
        return None
    added = {**added, REAL_TOPIC: topic, REAL_QUEUE_ID: str(queue_id)}
    return PropertyLayout(names, added, {TRANSACTION_ID: UNIQ_KEY})


class HalfMessageLayouts:
    """The half messages that a broker has met; its own properties, `added`, are put into every message."""

    def __init__(self, settings: Settings, added: Mapping[str, str]) -> None:
        self._settings = settings
        self._added = added
        self._last: dict[Queue, PropertyLayout] = {}
        """The layout of the last half message of each queue; the next one mostly has the same."""
        self._layouts: dict[tuple[str, int, bytes], PropertyLayout | None] = {}
        self._met: set[bytes] = set()

    def read(self, topic: str, queue_id: int, block: bytes) -> StoredProperties | None:
        """The properties to store of a half message; None if it has no layout."""
        if _IS_HALF not in block or self._settings.broker.reject_transaction_message:
            return None
        layout = self._last.get((topic, queue_id))
        stored = None if layout is None else layout.read(block)
        if stored is None:
            layout = self._find(topic, queue_id, block)
            stored = None if layout is None else layout.read(block)
            if layout is None or stored is None:
                return None
            if len(self._last) >= _MAX_LAYOUTS:
                self._last.clear()
            self._last[topic, queue_id] = layout
        return stored

    def _find(self, topic: str, queue_id: int, block: bytes) -> PropertyLayout | None:
        *names, rest = block.replace(b"\x02", b"\x01").split(b"\x01")[::2]
        joined = b"\x01".join(names)
        if rest or joined not in self._met:
            if len(self._met) >= _MAX_LAYOUTS:
                self._met.clear()
            self._met.add(joined)
            return None
        key = (topic, queue_id, joined)
        if key not in self._layouts:
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            decoded = [name.decode() for name in names]
            self._layouts[key] = half_layout(decoded, self._added, topic, queue_id)
        return self._layouts[key]
