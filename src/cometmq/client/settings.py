"""Client settings, and how a client finds its name servers.

Rules kept here:
- Settings are checked when they are made. The error names the value and what would work.
- Name servers come from `namesrv`, else from `COMETMQ_NAMESRV` or `NAMESRV_ADDR` in the environment, else
  from the address server at `namesrv_domain` or in the environment. Without any, a client is refused with a
  sentence that says how to name one.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import re
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from types import NoneType
from typing import Any, Final, TypedDict, TypeVar, get_args

import msgspec

from cometmq.client.instance.name_servers import NameServerSource
from cometmq.model.errors import SettingsError
from cometmq.model.times import ms_fault
from cometmq.remoting.name_server_addresses import address_server_url, listed_in, parse_addresses
from cometmq.remoting.tls import ClientTls
from cometmq.wire.frame.framing import JSON, ROCKETMQ

DEFAULT_INSTANCE_NAME: Final = "DEFAULT"
_CAPITAL: Final = re.compile(r"([A-Z])")
_INSTANCE_ENDPOINT: Final = re.compile(r"(?:https?://)?(MQ_INST_\w+_\w+)\.", re.IGNORECASE)


S = TypeVar("S", bound=msgspec.Struct)


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of every client; producers and consumers add their own."""

    namesrv: str | Sequence[str] = ""
    """`host:port;host:port`, or a list; if empty, `COMETMQ_NAMESRV` or `NAMESRV_ADDR` of the environment."""
    namesrv_domain: str = ""
    """`host:port` of an HTTP address server that lists the name servers, if none are given."""
    namesrv_dns_lookup: bool = False
    """Use every address that DNS has for the names in the list, and look them up every two minutes."""
    instance_name: str = DEFAULT_INSTANCE_NAME
    """Clients with the same name share their connections; the default is replaced by a unique name."""
    client_ip: str | None = None
    """The address in the client id; None is the address of this machine."""
    unit_name: str | None = None
    """The unit of the client, for address servers and in its client id; None is no unit."""
    call_timeout_ms: int = 3_000
    """For calls without a timeout of their own."""
    poll_name_server_interval_ms: int = 30_000
    """How often the routes of topics are looked up again."""
    heartbeat_broker_interval_ms: int = 30_000
    """How often brokers get a heartbeat; they forget a client after two minutes without one."""
    persist_consumer_offset_interval_ms: int = 5_000
    """How often push consumers store their offsets; after a crash, what was consumed since comes again."""
    tls: ClientTls | None = None
    """Connect with TLS; None is without."""
    access_key: str | None = None
    """With an access key and a secret key, every request is signed."""
    secret_key: str | None = None
    """The key that requests are signed with; it is never sent."""
    security_token: str | None = None
    """Sent along with signed requests, for temporary keys."""
    namespace: str = ""
    """Put before every topic and group name, and removed again from names in results."""
    serialize_type: int = JSON
    """The header encoding of requests: 0 is JSON, 1 is RocketMQ's binary one."""
    use_heartbeat_v2: bool = False
    """Send a heartbeat in full only if it changed; brokers that do not know this get it in full."""
    vip_channel_enabled: bool = False
    """Send to the broker's port for sends only, two below its own, which consumers do not keep busy."""

    def __post_init__(self) -> None:
        if not isinstance(self.namesrv, str):  # so that settings compare, and show, as one text
            msgspec.structs.force_setattr(self, "namesrv", ";".join(self.namesrv))
        for name, kinds in _plain_kinds(type(self)).items():
            value = getattr(self, name)
            if not isinstance(value, kinds):
                wanted = " or ".join(_KINDS[kind] for kind in kinds if kind in _KINDS)
                raise SettingsError(f"{name} is {value!r}; it has to be {wanted}")
        for name in self.__struct_fields__:
            if name.endswith("_ms") and getattr(self, name) is not None:
                fault = ms_fault(name, getattr(self, name))
                if fault is not None:
                    raise SettingsError(fault)
        check_at_least(self, 1, *(name for name in self.__struct_fields__ if name.endswith("_interval_ms")))
        check_at_least(self, 1, "call_timeout_ms")
        if (self.access_key is None) != (self.secret_key is None):
            raise SettingsError("access_key and secret_key belong together; give both or none")
        if self.serialize_type not in (JSON, ROCKETMQ):
            raise SettingsError(f"serialize_type is {self.serialize_type}; use JSON (0) or ROCKETMQ (1)")
        if not self.instance_name.strip() or "@" in self.instance_name:
            raise SettingsError(f"instance_name {self.instance_name!r} is blank or contains '@'")

    @property
    def call_timeout_s(self) -> float:
        return self.call_timeout_ms / 1000


_KINDS: Final = {bool: "True or False", str: "a text", ClientTls: "ClientTls(…), or None for no TLS"}
"""The types of settings that are checked by their type alone."""


@functools.cache
def _plain_kinds(struct: type[msgspec.Struct]) -> dict[str, tuple[type, ...]]:
    """The settings of plain types, with these types."""
    hints = {field.name: get_args(field.type) or (field.type,) for field in msgspec.structs.fields(struct)}
    return {name: kinds for name, kinds in hints.items() if {*kinds} <= {*_KINDS, NoneType}}


class ClientOptions(TypedDict, total=False):
    """`ClientSettings` as keywords, for type checkers."""

    namesrv: str | Sequence[str]
    namesrv_domain: str
    namesrv_dns_lookup: bool
    instance_name: str
    client_ip: str | None
    unit_name: str | None
    call_timeout_ms: int
    poll_name_server_interval_ms: int
    heartbeat_broker_interval_ms: int
    persist_consumer_offset_interval_ms: int
    tls: ClientTls | None
    access_key: str | None
    secret_key: str | None
    security_token: str | None
    namespace: str
    serialize_type: int
    use_heartbeat_v2: bool
    vip_channel_enabled: bool


def check_at_least(settings: msgspec.Struct, least: int, *names: str) -> None:
    """Refuse numbers that are too small."""
    for name in names:
        value = getattr(settings, name)
        if not isinstance(value, int) or value < least:
            raise SettingsError(f"{name} is {value!r}; it has to be a whole number of at least {least}")


def check_at_most(settings: msgspec.Struct, most: int, *names: str) -> None:
    """Refuse numbers that are too large."""
    for name in names:
        value = getattr(settings, name)
        if value > most:
            raise SettingsError(f"{name} is {value}; at most {most} is possible")


def settings_of(
    struct: type[S],
    settings: S | None,
    options: Mapping[str, Any],
    client: type,
    known: Collection[str] | None = None,
) -> S:
    """The settings of a client, given as a struct or as keywords: `known`, or all fields of the struct."""
    for name in options:
        if name not in (struct.__struct_fields__ if known is None else known):
            raise TypeError(_unknown_option(name, struct, client, known))
    if settings is None:
        return struct(**options)
    if options:
        raise TypeError("give settings, or keywords, not both")
    return settings


def _unknown_option(
    name: str, struct: type[msgspec.Struct], client: type, known: Collection[str] | None
) -> str:
    if name in struct.__struct_fields__:
        return f"option {name!r} has no effect in a {client.__name__}; leave it out"
    names = [*inspect.signature(client).parameters, *(known or struct.__struct_fields__)]
    near = difflib.get_close_matches(_CAPITAL.sub(r"_\1", name).lower(), names, n=1)
    if near:
        return f"unknown option {name!r}: did you mean {near[0]!r}?"
    return f"unknown option {name!r}; help({client.__name__}) lists the options"


def common_settings(settings: ClientSettings) -> ClientSettings:
    """The part of a producer's or consumer's settings that all clients share."""
    return ClientSettings(**{name: getattr(settings, name) for name in ClientSettings.__struct_fields__})


def name_server_source(
    settings: ClientSettings, environment: Mapping[str, str] = os.environ
) -> NameServerSource:
    """Where a client finds its name servers."""
    listed = parse_addresses(settings.namesrv or listed_in(environment))
    url = (
        ""
        if listed
        else address_server_url(
            settings.namesrv_domain, unit=settings.unit_name or "", environment=environment
        )
    )
    if not listed and not url:
        raise SettingsError(
            "no name server is known; pass namesrv='host:9876', or set COMETMQ_NAMESRV in the environment",
            code=NO_NAME_SERVER,
        )
    return NameServerSource(listed, url, settings.namesrv_dns_lookup)


NO_NAME_SERVER: Final = 10004


def namespace_of(settings: ClientSettings) -> str:
    """The namespace: the setting, or the one in the name server's endpoint."""
    match = _INSTANCE_ENDPOINT.match(str(settings.namesrv).strip())
    return settings.namespace or (match.group(1) if match else "")


class ServiceState(Enum):
    """The lifecycle state of a client."""

    CREATED = "not started"
    RUNNING = "running"
    START_FAILED = "failed at its start"
    STOPPED = "stopped"
