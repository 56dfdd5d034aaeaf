"""Settings on the command line: a file, then COMETMQ_* variables, then flags; shown with their origin."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import typer

from cometmq.cli.common.output import UsageError
from cometmq.model.errors import HeaderError, SettingsError
from cometmq.model.settings import Layer, Resolved, as_texts
from cometmq.wire.java_properties import parse_properties

VARIABLE_PREFIX = "COMETMQ_"


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
    return [Layer(layer.name, part) for part in parts]


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
