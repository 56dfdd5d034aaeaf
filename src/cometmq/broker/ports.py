"""The two ports of a broker: the main one, and the fast one two below it.

Clients work out the fast port by themselves, so that both have to be free. They are held from the moment they
are chosen until the servers listen: a store that takes long to recover does not lose them, and one that
cannot have them is not recovered in vain.
"""

from __future__ import annotations

import socket
from typing import Final

from cometmq.model.errors import CometError

FAST_PORT_DISTANCE: Final = 2
_ATTEMPTS: Final = 100


class HeldPorts:
    """Ports that nobody else gets."""

    def __init__(self, host: str, port: int) -> None:
        """With port 0, some that are free."""
        self._sockets: list[socket.socket] = []
        self.main = port
        if port:
            self._hold(host, port)
        else:
            self.main = self._find(host)

    @property
    def fast(self) -> int:
        return self.main - FAST_PORT_DISTANCE

    def _find(self, host: str) -> int:
        for _ in range(_ATTEMPTS):
            with _bound(host, 0) as probe:
                port: int = probe.getsockname()[1]
            try:
                self._hold(host, port)
            except CometError:
                continue
            return port
        raise CometError(f"no two free ports were found on {host}; choose a listenPort")

    def _hold(self, host: str, port: int) -> None:
        try:
            for each in (port, port - FAST_PORT_DISTANCE):
                self._sockets.append(_bound(host, each))
        except (OSError, OverflowError) as error:
            self.release()
            reason = error.strerror if isinstance(error, OSError) else "no such port"
            raise CometError(
                f"cannot listen on {host}, ports {port} and {port - FAST_PORT_DISTANCE}: {reason}; "
                "stop what uses them, or choose another listenPort"
            ) from None

    def release(self) -> None:
        """Let go of the ports; servers that listen on them meanwhile keep them."""
        for each in self._sockets:
            each.close()
        self._sockets.clear()


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    held = socket.socket(family, socket.SOCK_STREAM)
    # Whoever listens on the port sets this, too; then both may be bound as long as only one listens.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind((host, port))
    except BaseException:
        held.close()
        raise
    return held
