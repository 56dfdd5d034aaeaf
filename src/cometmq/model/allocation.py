"""Averaging allocation of queues to clients, used by clients and brokers.

Rules kept here: every client computes the allocation alone, from the same sorted lists, so it equals Java's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")

AVERAGELY: Final = "AVG"
BY_CIRCLE: Final = "AVG_BY_CIRCLE"


def averagely(things: Sequence[T], index: int, clients: int) -> list[T]:
    """Neighbours to each client; the first clients get one more."""
    size, spare = divmod(len(things), clients)
    start = index * size + min(index, spare)
    return list(things[start : start + size + (index < spare)])


def by_circle(things: Sequence[T], index: int, clients: int) -> list[T]:
    """Round-robin."""
    return list(things[index::clients])
