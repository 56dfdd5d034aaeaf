"""Shares of the process's file descriptors (`ulimit -n`).

Rules kept here:
- Incoming connections of all servers of the process share all but 128 descriptors. One more is closed as soon
  as it is accepted; open connections stay.
- The 128 are for files that are open for a moment, listening ports, calls to other servers, and the metrics
  port. Queue files hold no descriptors.
- The limit is read each time: it may change while the process runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sized
from typing import Final, Protocol
from weakref import WeakSet

from cometmq.ports.descriptors import descriptor_limit

_FOR_THE_REST: Final = 128


class HasConnections(Protocol):
    @property
    def connections(self) -> Sized: ...


_servers: WeakSet[HasConnections] = WeakSet()


def connection_share() -> int:
    """Returns how many descriptors incoming connections may take."""
    limit = descriptor_limit()
    return max(limit - min(_FOR_THE_REST, limit // 2), 1)


def take_part(server: HasConnections) -> None:
    """Count the connections of a server from now on."""
    _servers.add(server)


def has_room() -> bool:
    """Whether one more connection may come in."""
    return sum(len(server.connections) for server in list(_servers)) < connection_share()


def shares() -> str:
    """Returns the shares as a sentence for the log."""
    limit, connections = descriptor_limit(), connection_share()
    if limit == sys.maxsize:
        return "descriptors: no limit"
    return f"{limit} descriptors: {connections} for connections, {limit - connections} for everything else"
