"""The connections of a client instance, which is told of every one that is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cometmq.remoting.client import RemotingClient
from cometmq.remoting.connection import Connection


class ClientConnections(RemotingClient):
    """A `RemotingClient` that says when a connection was made."""

    def __init__(self, connected: Callable[[str], None], **options: Any) -> None:
        super().__init__(**options)
        self._tell = connected

    def opened(self, connection: Connection) -> str | None:
        refusal = super().opened(connection)
        if refusal is None:
            self._tell(connection.remote_address)
        return refusal
