"""The ports of a broker: the main one, the fast one two below it, and the HA port for its slaves.

Clients work out the fast port by themselves, so that all have to be free. They are held from the moment they
are chosen until the servers listen: a store that takes long to recover does not lose them, and one that
cannot have them is not recovered in vain.
"""

from __future__ import annotations

import socket
from typing import Final

from cometmq.model.errors import CometError
from cometmq.ports.system import IS_WINDOWS

FAST_PORT_DISTANCE: Final = 2
_ATTEMPTS: Final = 100


class HeldPorts:
    """Ports that nobody else gets."""

    def __init__(self, host: str, port: int, ha_port: int = 0) -> None:
        """With port 0, some that are free; with HA port 0, the one after the main port."""
        self._sockets: list[socket.socket] = []
        self.main = port
        self._ha_port = ha_port
        if port:
            self._hold(host, port)
        else:
            self.main = self._find(host)

    @property
    def fast(self) -> int:
        return self.main - FAST_PORT_DISTANCE

    @property
    def ha(self) -> int:
        return self._ha_port or self.main + 1

    def _find(self, host: str) -> int:
        for _ in range(_ATTEMPTS):
            with _bound(host, 0) as probe:
                port: int = probe.getsockname()[1]
            try:
                self._hold(host, port)
            except CometError:
                continue
            return port
        raise CometError(f"no free ports next to each other were found on {host}; choose a listenPort")

    def _hold(self, host: str, port: int) -> None:
        ports = port, port - FAST_PORT_DISTANCE, self._ha_port or port + 1
        try:
            for each in ports:
                self._sockets.append(_bound(host, each))
        except (OSError, OverflowError) as error:
            self.release()
            reason = error.strerror if isinstance(error, OSError) else "no such port"
            main, fast, ha = ports
            raise CometError(
                f"cannot listen on {host}, ports {main}, {fast} and {ha}: {reason}; "
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
    # Whoever listens there sets this, too; on Linux, both may be bound then as long as only one listens.
    if not IS_WINDOWS:  # where it would take a port away from its owner
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind((host, port))
    except BaseException:
        held.close()
        raise
    return held
