"""Addresses of a broker: host names, IPv4 and IPv6.

Rules kept here:
- What is written in `brokerIP1` and `brokerIP2` is announced as it is written, host name or address; an IPv6
  address stands in brackets, because Go's and other clients take it no other way.
- Messages carry addresses, not names: a host name is resolved once, when the broker is built, IPv4 first.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Final

from cometmq.model.errors import SettingsError

_ADVICE: Final = "write an address, or a host name, that clients can reach, without a port"


def announced(host: str, port: int) -> str:
    """`host:port` as clients are told."""
    bare = _bare(host)
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def resolve_host(key: str, host: str) -> str:
    """The IP address of the host that a setting names; looking a name up blocks."""
    bare = _bare(host)
    try:
        return str(ip_address(bare.partition("%")[0]))
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(bare, None, type=socket.SOCK_STREAM) if bare else []
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SettingsError(f"{key} = {host!r} cannot be resolved: {reason}; {_ADVICE}") from None
    if not found:
        raise SettingsError(f"{key} is empty; {_ADVICE}")
    address = min(found, key=lambda each: each[0] != socket.AF_INET)[4][0]
    return str(address).partition("%")[0]


def _bare(host: str) -> str:
    return host.strip().removeprefix("[").removesuffix("]")
