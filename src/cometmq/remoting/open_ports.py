"""A warning at the start of a server whose port other machines reach without access control.

Rules kept here: one line in the log for each server that listens on more than loopback. It says who can do
what, and what to do about it. Nothing is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def warn_if_open(log: logging.Logger, what: str, host: str, ports: Iterable[int], setting: str) -> None:
    """Warn of ports that other machines reach; `setting` is the key of the address."""
    if is_loopback(host):
        return
    addresses = " and ".join(f"{host}:{port}" for port in ports)
    log.warning(
        "%s on %s: there is no access control, so this is true of everybody who reaches this machine. "
        "Set %s = 127.0.0.1, or let a firewall decide who reaches it; see docs/SECURITY.md",
        *(f"{what}", addresses, setting),
    )
