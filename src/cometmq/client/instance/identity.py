"""The identity of a client: its address, its client id, and the ids of its messages.

Rules kept here:
- `clientId = ip@instanceName[@unitName]`. The default instance name becomes `<pid>#<time>`, so that two
  clients of a process are two clients to a broker. Broadcasting keeps it, because it needs a stable name.
- Message ids are unique over all clients of a process: each generator has its own random number, and is used
  by one event loop only.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from datetime import datetime
from ipaddress import ip_address
from typing import Final

from cometmq.client.settings import DEFAULT_INSTANCE_NAME, ClientSettings
from cometmq.model.errors import SettingsError
from cometmq.ports.clock import Clock
from cometmq.wire.record.ids import UniqueIdGenerator

_LOOPBACK: Final = "127.0.0.1"
# Documentation addresses, to which nobody routes: no packet is sent, the system only picks the source.
_SOMEWHERE: Final = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def local_ip() -> str:
    """The address of this machine that others see, or loopback."""
    for family, address in _SOMEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((address, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return _LOOPBACK


def client_id(settings: ClientSettings, *, keep_instance_name: bool = False) -> str:
    """The id of a client that starts now."""
    name = settings.instance_name
    if name == DEFAULT_INSTANCE_NAME and not keep_instance_name:
        name = f"{os.getpid()}#{time.monotonic_ns()}"
    parts = [settings.client_ip or local_ip(), name]
    if settings.unit_name:
        parts.append(settings.unit_name)
    return "@".join(parts)


class MessageIds:
    """Generates message ids, for one event loop."""

    __slots__ = ("_clock", "_generator", "_month_end_ms")

    def __init__(self, ip: str | None, clock: Clock) -> None:
        try:
            address = ip_address(ip or local_ip()).packed
        except ValueError:
            raise SettingsError(f"client_ip {ip!r} is not an IP address") from None
        self._clock = clock
        start, self._month_end_ms = month_around(clock.now_ms())
        self._generator = UniqueIdGenerator(
            address, os.getpid(), secrets.randbits(32), start, secrets.randbits(16)
        )

    def next_id(self, now_ms: int) -> str:
        """The id of a message made now."""
        if now_ms >= self._month_end_ms:
            start, self._month_end_ms = month_around(now_ms)
            self._generator.start_month(start)
        return self._generator.next_id(now_ms)


def month_around(now_ms: int) -> tuple[int, int]:
    """The start of this time's month and of the next one, local time, in milliseconds."""
    now = datetime.fromtimestamp(now_ms / 1000)
    start = datetime(now.year, now.month, 1)
    end = datetime(now.year + now.month // 12, now.month % 12 + 1, 1)
    return int(start.timestamp() * 1000), int(end.timestamp() * 1000)
