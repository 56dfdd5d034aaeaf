"""Who gets how many of the descriptors that the process may have (`ulimit -n`).

Rules kept here:
- Connections that come in take what the rest does not need, over all servers of the process together. One
  more is closed as soon as it is accepted; those that are there stay.
- The rest is for files that are open for a moment, the listening ports, calls to other servers, the port of
  the metrics. Queue files hold no descriptors.
- The limit is asked for each time, because it may be changed while a process runs.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Sized
from typing import Final, Protocol
from weakref import WeakSet

_FOR_THE_REST: Final = 128


class HasConnections(Protocol):
    """A server, with the connections that it accepted."""

    @property
    def connections(self) -> Sized: ...


_servers: WeakSet[HasConnections] = WeakSet()


def descriptor_limit() -> int:
    """How many descriptors the process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def connection_share() -> int:
    """How many of them incoming connections may take."""
    limit = descriptor_limit()
    return max(limit - min(_FOR_THE_REST, limit // 2), 1)


def take_part(server: HasConnections) -> None:
    """Count the connections of a server from now on."""
    _servers.add(server)


def has_room() -> bool:
    """Whether one more connection may come in."""
    return sum(len(server.connections) for server in list(_servers)) < connection_share()


def shares() -> str:
    """The shares, as a sentence for the log."""
    limit, connections = descriptor_limit(), connection_share()
    return f"{limit} descriptors: {connections} for connections, {limit - connections} for everything else"
