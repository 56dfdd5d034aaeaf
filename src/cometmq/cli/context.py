"""`cometmq context`: named clusters, and which one commands use.

Rules kept here: secrets are read from variables or typed without echo, never taken from the command line, and
never printed.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Annotated, Final

import msgspec
import typer

from cometmq.cli.commands import CommandGroup
from cometmq.cli.common.connect import AsJson, Yes
from cometmq.cli.common.contexts import (
    CONTEXT_VARIABLE,
    DEFAULT_NAMESRV,
    VARIABLES,
    context_in_force,
    masked,
    read_contexts,
)
from cometmq.cli.common.output import Column, UsageError, confirm, listed, print_pairs, shown, told, yes_or_no
from cometmq.remoting.name_server_addresses import listed_in, parse_addresses

app = CommandGroup("context")

_NAME: Final = re.compile(r"[\w.-]+")

Name = Annotated[str, typer.Argument(help="The name of the context.", metavar="CONTEXT")]


class ContextLine(msgspec.Struct, rename="camel"):
    """A context, without its secrets."""

    name: Annotated[str, Column("context")]
    in_use: Annotated[bool, Column("in use", yes_or_no)]
    namesrv: Annotated[str, Column("name servers")]
    tls: Annotated[bool, Column("TLS", yes_or_no)]
    access_key: Annotated[str | None, Column("access key")]


@app.command("list")
def list_contexts(as_json: AsJson = False) -> None:
    """List the contexts.

    Examples:
      cometmq context list
      cometmq context list --json | jq -r '.contexts[].name'
    """
    contexts = read_contexts()
    lines = [
        ContextLine(
            name, name == contexts.in_use, each["namesrv"], each.get("tls") == "true", each.get("accessKey")
        )
        for name, each in sorted(contexts.by_name.items())
    ]
    document = {"file": str(contexts.path), "inUse": contexts.in_use, "contexts": lines}
    listed(document, ContextLine, lines, as_json=as_json)


@app.command()
def add(
    name: Name,
    namesrv: Annotated[
        str, typer.Option("-n", "--namesrv", help="Its name servers, host:port;host:port.", metavar="ADDRS")
    ],
    access_key: Annotated[
        str | None,
        typer.Option("--access-key", help="Access key; the secret key is asked for.", metavar="KEY"),
    ] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Use TLS.")] = False,
    tls_trust: Annotated[
        str | None,
        typer.Option("--tls-trust", help="Check servers against these certificates.", metavar="FILE"),
    ] = None,
    tls_cert: Annotated[
        str | None, typer.Option("--tls-cert", help="Client certificate.", metavar="FILE")
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option("--tls-key", help="Key of the client certificate.", metavar="FILE")
    ] = None,
    in_use: Annotated[bool, typer.Option("--use", help="Also use it from now on.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Add a context, or replace one.

    Examples:
      cometmq context add local -n 127.0.0.1:9876 --use
      cometmq context add prod -n 'mq-1:9876;mq-2:9876' --access-key ops --tls
      COMETMQ_SECRET_KEY=... cometmq context add test -n mq:9876 \\
        --access-key ops

    The secret key of an access key comes from COMETMQ_SECRET_KEY, or is typed. The password of a TLS key
    comes from COMETMQ_TLS_KEY_PASSWORD. Only you can read the file with the contexts.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of a context; use letters, digits, '.', '_' and '-'")
    if not tls and (tls_trust or tls_cert or tls_key):
        raise UsageError("say --tls, too, if the context is to use TLS")
    secret = None
    if access_key is not None:
        secret = os.environ.get(VARIABLES["secretKey"]) or _typed("Secret key")
    files = {"tlsTrust": tls_trust, "tlsCert": tls_cert, "tlsKey": tls_key}
    settings = {
        "namesrv": ";".join(parse_addresses(namesrv)),
        "accessKey": access_key,
        "secretKey": secret,
        "tls": "true" if tls else None,
        **{setting: path and os.path.abspath(path) for setting, path in files.items()},
        "tlsKeyPassword": os.environ.get(VARIABLES["tlsKeyPassword"]) if tls_key else None,
    }
    if not settings["namesrv"]:
        raise UsageError("--namesrv names no server; say -n host:9876")
    contexts = read_contexts()
    if name in contexts.by_name:
        confirm(f"Replace context {name} ({contexts.by_name[name]['namesrv']})?", yes=yes)
    contexts.by_name[name] = {setting: value for setting, value in settings.items() if value}
    if in_use:
        contexts.in_use = name
    contexts.write()
    document = {"name": name, "inUse": contexts.in_use == name, **masked(contexts.by_name[name])}
    hint = "is in use" if contexts.in_use == name else f"was added; use it with: cometmq context use {name}"
    told(document, f"context {name} {hint}", as_json=as_json)


def _typed(what: str) -> str:
    if not sys.stdin.isatty():
        raise UsageError(f"nobody can be asked for the {what.lower()} here; set COMETMQ_SECRET_KEY")
    typed: str = typer.prompt(what, hide_input=True, err=True)
    return typed


@app.command()
def use(
    name: Annotated[str | None, typer.Argument(help="The name of the context.", metavar="[CONTEXT]")] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no context from now on.")] = False,
    as_json: AsJson = False,
) -> None:
    """Choose the context that commands use from now on.

    Examples:
      cometmq context use prod
      cometmq context use --none
    """
    if (name is None) != none:
        raise UsageError("say which context is to be used, or --none")
    contexts = read_contexts()
    if name is not None:
        contexts.get(name)
    contexts.in_use = name
    contexts.write()
    told(
        {"inUse": name},
        f"commands use context {name}" if name else "commands use no context",
        as_json=as_json,
    )


@app.command()
def remove(name: Name, yes: Yes = False, as_json: AsJson = False) -> None:
    """Remove a context.

    Examples:
      cometmq context remove prod
      cometmq context remove prod --yes --json
    """
    contexts = read_contexts()
    settings = contexts.get(name)
    confirm(f"Remove context {name} ({settings['namesrv']})?", yes=yes)
    del contexts.by_name[name]
    if contexts.in_use == name:
        contexts.in_use = None
    contexts.write()
    told({"name": name}, f"context {name} was removed", as_json=as_json)


@app.command()
def show(
    name: Annotated[
        str | None,
        typer.Argument(help="The name of the context; default: the one in force.", metavar="[CONTEXT]"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a context without its secrets, or what commands use now.

    Examples:
      cometmq context show
      cometmq context show prod --json
    """
    found = context_in_force("", name or "")
    if found is not None:
        settings = found[1]
        chosen = CONTEXT_VARIABLE if os.environ.get(CONTEXT_VARIABLE) else "context use"
        source = "context show" if name else chosen
    else:
        settings = {setting: os.environ.get(variable, "") for setting, variable in VARIABLES.items()}
        settings["namesrv"] = listed_in() or DEFAULT_NAMESRV
        source = "variables" if listed_in() else "default"
    document = {
        "name": found[0] if found else None,
        "source": source,
        **masked({setting: value for setting, value in settings.items() if value}),
    }
    shown(document, lambda whole: print_pairs(whole.items()), as_json=as_json)
