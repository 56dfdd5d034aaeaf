"""Saying at the start that a port is open to others while nobody is asked who they are.

Rules kept here: one line a server, in the log, when it listens on an address that is not of this machine
alone. It says who can do what, and what to do about it. Nothing is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def warn_if_open(log: logging.Logger, what: str, host: str, ports: Iterable[int], setting: str) -> None:
    """Tell the operator of a port that others can reach; `setting` is what the address is called."""
    if is_loopback(host):
        return
    places = " and ".join(f"{host}:{port}" for port in ports)
    log.warning(
        "%s on %s: there is no access control, so this is true of everybody who reaches this machine. "
        "Set %s = 127.0.0.1, or let a firewall decide who reaches it; see docs/SECURITY.md",
        *(f"{what}", places, setting),
    )
