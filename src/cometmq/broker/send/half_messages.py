"""Sends of half messages, the short way: what is stored of their properties, without looking at each of them.

A producer sends one half message like the other. What becomes of the properties follows from their names,
apart from the values, so it is worked out once for each queue of a topic and put together from its parts.

Rules kept here:
- Only a half message without anything else special takes this way; every other one is left to `sending.py`,
  and so is every refusal.
- Names are worked out when they are met for the second time. Tables are bounded; one that is full, because a
  producer invents names, begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cometmq.broker.send.properties import SPECIAL, Shape, Stored
from cometmq.broker.settings import Settings
from cometmq.model.message_properties import (
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRAN_MSG,
    TRANSACTION_ID,
    UNIQ_KEY,
)

_IS_HALF: Final = f"{TRAN_MSG}\x01true\x02".encode()
_OWN: Final = frozenset({TRANSACTION_ID, REAL_TOPIC, REAL_QUEUE_ID})
"""What a half message has beside the properties of any message."""
_MAX_SHAPES: Final = 4096
_MAX_NAMES: Final = 64

Queue = tuple[str, int]
"""Topic and queue that a half message belongs to."""


def half_shape(names: list[str], added: Mapping[str, str], topic: str, queue_id: int) -> Shape | None:
    """What follows from these names for half messages of a queue; None if that is not enough to know."""
    known = set(names)
    if len(names) > _MAX_NAMES or len(known) < len(names) or "" in known:
        return None
    if known & SPECIAL != {TRAN_MSG} or UNIQ_KEY not in known or known & _OWN:
        return None
    added = {**added, REAL_TOPIC: topic, REAL_QUEUE_ID: str(queue_id)}
    return Shape(names, added, {TRANSACTION_ID: UNIQ_KEY})


class HalfSends:
    """The half messages that a broker has met; its own properties, `added`, are put into every message."""

    def __init__(self, settings: Settings, added: Mapping[str, str]) -> None:
        self._settings = settings
        self._added = added
        self._last: dict[Queue, Shape] = {}
        """The shape of the last half message of each queue; the next one mostly has the same."""
        self._shapes: dict[tuple[str, int, bytes], Shape | None] = {}
        self._met: set[bytes] = set()

    def read(self, topic: str, queue_id: int, block: bytes) -> Stored | None:
        """What is to be stored of the properties of a half message; None if it is not for the short way."""
        if _IS_HALF not in block or self._settings.broker.reject_transaction_message:
            return None
        shape = self._last.get((topic, queue_id))
        stored = None if shape is None else shape.read(block)
        if stored is None:
            shape = self._find(topic, queue_id, block)
            stored = None if shape is None else shape.read(block)
            if shape is None or stored is None:
                return None
            if len(self._last) >= _MAX_SHAPES:
                self._last.clear()
            self._last[topic, queue_id] = shape
        return stored

    def _find(self, topic: str, queue_id: int, block: bytes) -> Shape | None:
        *names, behind = block.replace(b"\x02", b"\x01").split(b"\x01")[::2]
        joined = b"\x01".join(names)
        if behind or joined not in self._met:
            if len(self._met) >= _MAX_SHAPES:
                self._met.clear()
            self._met.add(joined)
            return None
        key = (topic, queue_id, joined)
        if key not in self._shapes:
            if len(self._shapes) >= _MAX_SHAPES:
                self._shapes.clear()
            decoded = [name.decode() for name in names]
            self._shapes[key] = half_shape(decoded, self._added, topic, queue_id)
        return self._shapes[key]
