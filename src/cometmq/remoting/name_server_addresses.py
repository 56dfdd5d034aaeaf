"""Addresses of name servers: from a text or list, by DNS, or from RocketMQ's address server over HTTP.

Rules kept here:
- A list is divided by `;`, `,` or space. `http://` before an address is dropped, as by Java's client, and the
  port is 9876 if none is given.
- `COMETMQ_NAMESRV`, or else `NAMESRV_ADDR`, names the servers if nothing else does; after them
  `COMETMQ_NAMESRV_DOMAIN` the address server, whose URL is made as Java's client makes it.
- DNS gives every address behind each host name.
- The list of an address server is at most 64 KiB long, and at most 256 servers are taken.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
from collections.abc import Iterable, Mapping
from typing import Final

from cometmq.model.errors import ConnectError, SettingsError
from cometmq.model.java_numbers import natural_int

DEFAULT_PORT: Final = 9876
VARIABLES: Final = ("COMETMQ_NAMESRV", "NAMESRV_ADDR")
DOMAIN_VARIABLE: Final = "COMETMQ_NAMESRV_DOMAIN"
SUBGROUP_VARIABLE: Final = "COMETMQ_NAMESRV_DOMAIN_SUBGROUP"
APACHE_DOMAIN: Final = "jmenv.tbsite.net"
"""The address server of Java's client where none is named."""

_SEPARATORS: Final = re.compile(r"[;,\s]+")
_HOST: Final = re.compile(r"[^:/\[\]\s]+")
_SCHEME: Final = re.compile(r"https?://", re.IGNORECASE)
_TIMEOUT_S: Final = 3.0
_MAX_LIST_BYTES: Final = 64 * 1024
_MAX_ADDRESSES: Final = 256


def parse_addresses(listed: str | Iterable[str]) -> tuple[str, ...]:
    """The addresses in a list, each `host:port` and each once; a bad one is a `SettingsError`."""
    texts = (listed,) if isinstance(listed, str) else listed
    parts = (part for text in texts for part in _SEPARATORS.split(text))
    return tuple(dict.fromkeys(_with_port(part) for part in parts if part))[:_MAX_ADDRESSES]


def _with_port(text: str) -> str:
    address = _SCHEME.sub("", text).rstrip("/")
    if _is_v6(address.strip("[]")):
        return f"[{address.strip('[]')}]:{DEFAULT_PORT}"
    host, _, port = address.rpartition(":") if ":" in address else (address, "", str(DEFAULT_PORT))
    number = natural_int(port)
    is_host = _is_v6(host[1:-1]) if host.startswith("[") else bool(_HOST.fullmatch(host))
    if not is_host or number is None or not 0 < number < 65_536:
        raise SettingsError(
            f"{text!r} is no address of a name server; expected host:port, e.g. 10.0.0.1:9876"
        )
    return f"{host}:{port}"


def _is_v6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def listed_in(environment: Mapping[str, str] = os.environ) -> str:
    """The list of name servers in the environment; empty if there is none."""
    return next((environment[name] for name in VARIABLES if environment.get(name)), "")


def address_server_url(
    domain: str | None = None,
    subgroup: str | None = None,
    *,
    unit: str = "",
    environment: Mapping[str, str] = os.environ,
) -> str:
    """The URL of the address server at a domain, or at that of the environment; empty if there is none."""
    domain = domain or environment.get(DOMAIN_VARIABLE, "")
    subgroup = subgroup or environment.get(SUBGROUP_VARIABLE, "nsaddr")
    if not domain:
        return ""
    host = domain if ":" in domain else f"{domain}:8080"
    return f"http://{host}/rocketmq/{subgroup}" + (f"-{unit}?nofix=1" if unit else "")


async def fetch_addresses(url: str) -> tuple[str, ...]:
    """The list that an address server gives; `ConnectError` if it gives none."""
    text = await asyncio.to_thread(_fetch, url)
    try:
        found = parse_addresses(text)
    except SettingsError as error:
        raise ConnectError(f"the address server {url} gave a list that cannot be read: {error}") from None
    if not found:
        raise ConnectError(f"the address server {url} gave an empty list of name servers")
    return found


def _fetch(url: str) -> str:
    import http.client  # all here: few processes need them, and they take long to load
    import urllib.error
    import urllib.request

    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is in our own network
    try:
        with direct.open(url, timeout=_TIMEOUT_S) as answer:
            return str(answer.read(_MAX_LIST_BYTES), "utf-8", "replace")
    except (OSError, ValueError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it is the answer, too
        raise ConnectError(f"the address server {url} gave no name servers: {error}") from None


async def resolve_addresses(addresses: Iterable[str]) -> tuple[str, ...]:
    """Every address behind the host names in a list, by DNS; `ConnectError` if none is found."""
    loop = asyncio.get_running_loop()
    found: dict[str, None] = {}
    failure = ""
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            answers = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except OSError as error:
            failure = f"{host}: {error}"
            continue
        for family, *_, where in sorted(answers):
            known = f"[{where[0]}]" if family == socket.AF_INET6 else where[0]
            found[f"{known}:{port}"] = None
    if not found:
        raise ConnectError(f"DNS knows none of the name servers ({failure or 'none was given'})")
    return tuple(found)[:_MAX_ADDRESSES]
