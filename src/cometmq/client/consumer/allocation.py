"""Allocation strategies: which of a topic's queues a member of a group reads.

Rules kept here:
- Every member computes the allocation alone, from the same sorted queues and client ids, exactly as Java does
  it, so that all members agree, Java's included.
- A member that is not among the client ids, or is spare, gets nothing.
- Empty queues or client ids are a mistake of the caller and refused.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from cometmq.model.allocation import AVERAGELY, BY_CIRCLE, averagely, by_circle
from cometmq.model.errors import CometError
from cometmq.model.queue import MessageQueue


class HashRing:
    """A consistent hash ring with the positions that Java's client uses.

    Each node is on the ring `virtual_nodes` times, as `<node>-<n>`, at the first four bytes of the MD5 of
    that name.
    """

    def __init__(self, nodes: Iterable[str], virtual_nodes: int) -> None:
        nodes_by_position = {_position(f"{node}-{n}"): node for node in nodes for n in range(virtual_nodes)}
        self._positions = sorted(nodes_by_position)
        self._nodes = [nodes_by_position[position] for position in self._positions]

    def owner_of(self, key: str) -> str | None:
        """The node at the key's position or the next one after it; None on an empty ring."""
        if not self._nodes:
            return None
        index = bisect_left(self._positions, _position(key))
        return self._nodes[index if index < len(self._nodes) else 0]


def _position(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


class AllocationError(CometError):
    """Queues that cannot be allocated; the message says what is missing."""


class AllocationStrategy(Protocol):
    """Decides which queues of a topic one client reads."""

    @property
    def name(self) -> str:
        """The name of the strategy in configurations and requests."""

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The queues of `client_id`; both lists are sorted."""


def _index_of(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> int | None:
    """The index of a client among all; None if it is missing."""
    if not client_id:
        raise AllocationError("the client id is empty")
    if not queues or not client_ids:
        what = "queues" if not queues else "client ids"
        raise AllocationError(f"there are no {what} to allocate")
    try:
        return client_ids.index(client_id)
    except ValueError:
        return None


class _ByIndex(ABC):
    """Allocates by the index of a client among all; one that is missing gets nothing."""

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        index = _index_of(client_id, queues, client_ids)
        return [] if index is None else self._share(queues, index, len(client_ids))

    @abstractmethod
    def _share(self, queues: Sequence[MessageQueue], index: int, count: int, /) -> list[MessageQueue]: ...


class Averagely(_ByIndex):
    """Contiguous queues to each client, one more to the first ones: the default."""

    name = AVERAGELY
    _share = staticmethod(averagely)


class AveragelyByCircle(_ByIndex):
    """Queues to the clients round-robin."""

    name = BY_CIRCLE
    _share = staticmethod(by_circle)


class ByConfiguration:
    """The queues that the user names."""

    name = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self.queues = list(queues)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(self.queues)


class ByMachineRoom(_ByIndex):
    """Only queues of brokers in certain rooms: brokers named `<room>@<anything>`."""

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Iterable[str]) -> None:
        self.rooms = frozenset(rooms)

    def _share(self, queues: Sequence[MessageQueue], index: int, count: int, /) -> list[MessageQueue]:
        inside = [queue for queue in queues if self._is_inside(queue.broker_name)]
        size, spare = divmod(len(inside), count)
        chosen = inside[index * size : (index + 1) * size]
        if index < spare:
            chosen.append(inside[index + size * count])
        return chosen

    def _is_inside(self, broker_name: str) -> bool:
        parts = broker_name.rstrip("@").split("@")  # Java's split drops empty parts at the end
        return len(parts) == 2 and parts[0] in self.rooms


class NearestRoom:
    """Queues of a room to the clients in it; queues of a room without clients to everybody."""

    def __init__(
        self,
        inner: AllocationStrategy,
        room_of_queue: Callable[[MessageQueue], str],
        room_of_client: Callable[[str], str],
    ) -> None:
        self.inner = inner
        self.name = f"MACHINE_ROOM_NEARBY-{inner.name}"
        self._room_of_queue = room_of_queue
        self._room_of_client = room_of_client

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if _index_of(client_id, queues, client_ids) is None:
            return []
        queues_by_room: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_by_room.setdefault(_named(self._room_of_queue(queue), queue), []).append(queue)
        clients_by_room: dict[str, list[str]] = {}
        for client in client_ids:
            clients_by_room.setdefault(_named(self._room_of_client(client), client), []).append(client)
        own_room = self._room_of_client(client_id)
        chosen: list[MessageQueue] = []
        if own_room in queues_by_room:
            near = queues_by_room.pop(own_room)
            chosen += self.inner.allocate(group, client_id, near, clients_by_room[own_room])
        for room in sorted(queues_by_room):
            if room not in clients_by_room:
                chosen += self.inner.allocate(group, client_id, queues_by_room[room], client_ids)
        return chosen


def _named(room: str, whose: object) -> str:
    if not room:
        raise AllocationError(f"the room of {whose} is not known")
    return room


class ConsistentHash:
    """Queues to clients by a hash ring, so that few queues move when a client comes or goes."""

    name = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = 10) -> None:
        if virtual_nodes < 0:
            raise AllocationError(f"{virtual_nodes} virtual nodes for a client are not possible")
        self.virtual_nodes = virtual_nodes

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if _index_of(client_id, queues, client_ids) is None:
            return []
        ring = HashRing(client_ids, self.virtual_nodes)
        return [queue for queue in queues if ring.owner_of(_java_text(queue)) == client_id]


def _java_text(queue: MessageQueue) -> str:
    """Java's `toString` of a queue, which is hashed."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
