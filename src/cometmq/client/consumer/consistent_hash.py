"""A hash ring: keys to nodes, such that few keys move when a node comes or goes.

Rule kept here: nodes and keys get the places that Java's client gives them, so that both sides agree: each
node stands on the ring `virtual_nodes` times, as `<node>-<n>`, at the first four bytes of its name's MD5.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable


class HashRing:
    """Finds the node of a key."""

    def __init__(self, nodes: Iterable[str], virtual_nodes: int) -> None:
        places = {_place(f"{node}-{n}"): node for node in nodes for n in range(virtual_nodes)}
        self._places = sorted(places)
        self._nodes = [places[place] for place in self._places]

    def owner_of(self, key: str) -> str | None:
        """The node at the key's place or the next one behind it; None on an empty ring."""
        if not self._nodes:
            return None
        index = bisect_left(self._places, _place(key))
        return self._nodes[index if index < len(self._nodes) else 0]


def _place(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")
