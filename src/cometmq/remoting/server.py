"""The remoting server: listens, accepts connections, and stops in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from cometmq.model.errors import CometError
from cometmq.remoting import descriptor_shares
from cometmq.remoting.connection import Connection
from cometmq.remoting.endpoint import Endpoint
from cometmq.remoting.handler import HandlerTable, RequestHook
from cometmq.remoting.limits import Limits
from cometmq.remoting.tls import ServerContexts, ServerTls

log = logging.getLogger("cometmq.remoting")


class RemotingServer(Endpoint):
    """Serves requests on a port, plain and TLS side by side."""

    def __init__(
        self,
        *,
        host: str = "0.0.0.0",
        port: int = 0,
        handlers: HandlerTable | None = None,
        hooks: Sequence[RequestHook] = (),
        limits: Limits | None = None,
        tls: ServerTls | None = None,
        backlog: int = 1024,
    ) -> None:
        super().__init__(limits=limits, handlers=handlers, hooks=hooks)
        tls = tls or ServerTls()
        self.host = host
        self.port = port
        """The port; with 0, the one that was free, known after `start`."""
        self.tls_mode = tls.mode
        self.tls_contexts = None if tls.mode == "disabled" else ServerContexts(tls)
        self._backlog = backlog
        self._listener: asyncio.Server | None = None

    def _refusal(self) -> str | None:
        refusal = super()._refusal()
        if refusal is None and not descriptor_shares.has_room():
            return (
                f"{descriptor_shares.connection_share()} connections are open, and the process may have no "
                "more files open; raise the limit (ulimit -n)"
            )
        return refusal

    async def start(self) -> None:
        """Listen; raises `CometError` if the port or the certificate cannot be had."""
        if self.tls_contexts is not None and self.tls_contexts.has_files:
            await self.loop.run_in_executor(None, self.tls_contexts.current)
        try:
            self._listener = await self.loop.create_server(
                lambda: Connection(self, sniff=True).channel, self.host, self.port, backlog=self._backlog
            )
        except OSError as error:
            raise CometError(
                f"cannot listen on {self.host}:{self.port}: {error.strerror or error}; "
                "stop what uses the port, or choose another listenPort"
            ) from None
        descriptor_shares.take_part(self)
        self.port = self._listener.sockets[0].getsockname()[1]
        log.info("listening on %s:%d", self.host, self.port)

    async def stop(self, *, go_away_s: float = 0) -> None:
        """Accept no more, answer what was accepted, close.

        With `go_away_s`, answer GO_AWAY to newer clients first, for at most that long.
        """
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if go_away_s > 0:
            self.going_away = True
            await self.all_closed(self.loop.time() + go_away_s)
        await self.drain()
