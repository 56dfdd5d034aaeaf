"""The two ways to share things out evenly among clients, as clients and brokers of RocketMQ both do it.

Rules kept here: everybody computes alone, from the same sorted lists, which client gets what; so it is done
exactly as Java does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")

AVERAGELY: Final = "AVG"
BY_CIRCLE: Final = "AVG_BY_CIRCLE"


def averagely(things: Sequence[T], index: int, clients: int) -> list[T]:
    """Neighbouring ones to each client, the first clients getting one more."""
    size, spare = divmod(len(things), clients)
    start = index * size + min(index, spare)
    return list(things[start : start + size + (index < spare)])


def by_circle(things: Sequence[T], index: int, clients: int) -> list[T]:
    """Dealt out one by one, like cards."""
    return list(things[index::clients])
