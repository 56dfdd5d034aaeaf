"""Pending replies: the connections of clients that wait for them.

Rules kept here: a client is found by its id among the producers that are online. Where it was found is
remembered, and believed only as long as it is still there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cometmq.remoting.connection import Connection

if TYPE_CHECKING:
    from cometmq.broker.groups.online import Clients

REMEMBERED: Final = 10_000


class PendingReplies:
    """Finds the connections of producers; belongs to the event loop."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._found: dict[str, tuple[str, Connection]] = {}
        """By client id: a group that it produces in, and its connection."""

    def find(self, client_id: str) -> Connection | None:
        """The connection of a client; None if it is not online."""
        found = self._found.get(client_id)
        if found is not None and self._is_there(client_id, *found):
            return found[1]
        self._found.pop(client_id, None)
        for group, members in self._clients.producers.items():
            for connection in members:
                if self._is_there(client_id, group, connection):
                    if len(self._found) >= REMEMBERED:
                        self._found.clear()
                    self._found[client_id] = group, connection
                    return connection
        return None

    def _is_there(self, client_id: str, group: str, connection: Connection) -> bool:
        client = self._clients.producers.get(group, {}).get(connection)
        return client is not None and client.client_id == client_id and connection.is_open
