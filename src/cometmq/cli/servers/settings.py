"""Settings on the command line: a file, then COMETMQ_* variables, then flags; shown with their origin."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import typer

from cometmq.cli.common.output import UsageError
from cometmq.model.errors import HeaderError, SettingsError
from cometmq.model.settings import Layer, Resolved, as_texts
from cometmq.wire.java_properties import parse_properties

VARIABLE_PREFIX: Final = "COMETMQ_"
CLIENT_VARIABLES: Final = frozenset(
    {
        "COMETMQ_ACCESS_KEY",
        "COMETMQ_CONTEXT",
        "COMETMQ_LOCAL_OFFSET_STORE_DIR",
        "COMETMQ_NAMESRV",
        "COMETMQ_NAMESRV_DOMAIN",
        "COMETMQ_NAMESRV_DOMAIN_SUBGROUP",
        "COMETMQ_SECRET_KEY",
        "COMETMQ_TLS",
        "COMETMQ_TLS_CERT",
        "COMETMQ_TLS_KEY",
        "COMETMQ_TLS_KEY_PASSWORD",
        "COMETMQ_TLS_TRUST",
    }
)
"""Variables of clients and commands, which are no settings of a server."""
_SERVICE: Final = re.compile(r"_SERVICE_(HOST|PORT)|_PORT_\d+_(TCP|UDP)")
_ADDRESS: Final = re.compile("(tcp|udp)://")
"""Kubernetes sets such names and values for a service whose name begins with cometmq."""


def file_layer(path: Path) -> Layer:
    """The properties of a `-c` file."""
    try:
        return Layer(str(path), parse_properties(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, HeaderError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SettingsError(f"the configuration file {path} cannot be read: {reason}") from None


def environment_layer(environment: Mapping[str, str], *structs: type[msgspec.Struct]) -> Layer:
    """COMETMQ_LISTEN_PORT is listenPort, COMETMQ_TLS_SERVER_MODE is tls.server.mode, and so on."""
    names = {variable_name(key): key for struct in structs for key in struct.__struct_encode_fields__}
    values = {names[name]: value for name, value in environment.items() if name in names}
    return Layer("environment", values)


def unknown_variables(environment: Mapping[str, str], known: Iterable[str]) -> list[str]:
    """A warning for each COMETMQ_* variable that no server and no client has; `known` are keys."""
    unknown = [
        name
        for name, value in sorted(environment.items())
        if name.startswith(VARIABLE_PREFIX) and not (_SERVICE.search(name) or _ADDRESS.match(value))
    ]
    names = [variable_name(key) for key in known] if unknown else []
    candidates = {*names, *CLIENT_VARIABLES}
    warnings = []
    for name in unknown:
        if name not in candidates:
            near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.8)  # all have the same beginning
            hint = f"; did you mean {near[0]}?" if near else ""
            warnings.append(f"unknown variable {name} is ignored{hint}")
    return warnings


def keys_of_all_servers() -> Iterator[str]:
    """All keys: several servers may share an environment. What most commands need not is imported here."""
    from cometmq.broker.config import BrokerConfig
    from cometmq.namesrv.config import NamesrvConfig, NamesrvSettings
    from cometmq.store.config import StoreConfig

    for struct in (BrokerConfig, StoreConfig, NamesrvConfig, NamesrvSettings):
        yield from struct.__struct_encode_fields__


def variable_name(key: str) -> str:
    """The variable that sets a property."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|\.", "_", key)
    return VARIABLE_PREFIX + words.upper()


def assignment_layer(assignments: Sequence[str]) -> dict[str, str]:
    """The `key=value` pairs of repeated `--set` flags."""
    try:
        return pairs_of(assignments, "--set listenPort=9877")
    except UsageError as error:
        raise SettingsError(f"--set {error}") from None


def pairs_of(assignments: Sequence[str], example: str) -> dict[str, str]:
    """The pairs of `key=value` texts; the last one of a key wins."""
    values: dict[str, str] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{assignment!r} is not key=value, for example {example}")
        values[key.strip()] = value
    return values


def split_layer(layer: Layer, structs: Sequence[type[msgspec.Struct]]) -> list[Layer]:
    """One layer for each struct; an unknown key goes to the one with the nearest key, which warns."""
    owners = {key: i for i, struct in enumerate(structs) for key in struct.__struct_encode_fields__}
    parts: list[dict[str, str]] = [{} for _ in structs]
    for key, value in layer.values.items():
        owner = owners.get(key)
        if owner is None:
            near = difflib.get_close_matches(key, owners, n=1)
            owner = owners[near[0]] if near else 0
        parts[owner][key] = value
    return [Layer(layer.name, part, layer.is_strict) for part in parts]


def print_settings(resolved: Sequence[Resolved[Any]], *, as_json: bool) -> None:
    """Every setting in force and where it came from; passwords only as stars."""
    rows: dict[str, tuple[str, str]] = {}
    for each in resolved:
        for key, value in as_texts(each.settings).items():
            shown = "******" if value and key.endswith("Password") else value
            rows[key] = (shown, each.origins.get(key, "default"))
    if as_json:
        table = {key: {"value": rows[key][0], "origin": rows[key][1]} for key in sorted(rows)}
        typer.echo(json.dumps(table, indent=2))
        return
    width = max(len(f"{key}={value}") for key, (value, _) in rows.items())
    for key in sorted(rows):
        value, origin = rows[key]
        typer.echo(f"{f'{key}={value}':<{width}}  # {origin}")
