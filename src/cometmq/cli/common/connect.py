"""Connections of commands to a cluster: common options, and one admin client for each command.

Rules kept here:
- Name servers, keys and TLS come from options, variables or a context; `contexts` has the order. Keys are
  never options: other users can see a command line.
- `--watch` repeats a command on one connection. A round that finds no server says so.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar

import typer

from cometmq.cli.common.contexts import context_in_force, names_servers, variables
from cometmq.cli.common.output import note
from cometmq.cli.common.times import duration
from cometmq.cli.servers.settings import (
    CLIENT_VARIABLES,
    VARIABLE_PREFIX,
    keys_of_all_servers,
    unknown_variables,
)
from cometmq.model.errors import RemotingError
from cometmq.remoting.name_server_addresses import listed_in

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin
    from cometmq.client.settings import ClientOptions

T = TypeVar("T")


Namesrv = Annotated[
    str,
    typer.Option(
        "-n",
        "--namesrv",
        help="Name servers, host:port;host:port; else COMETMQ_NAMESRV, the context, or this machine.",
        metavar="ADDRS",
    ),
]
Context = Annotated[
    str,
    typer.Option("--context", help="Use this context; see: cometmq context --help.", metavar="CONTEXT"),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        help="Time-out of one request.",
        metavar="DURATION",
        parser=duration(0.1),
        show_default="5s",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Cluster = Annotated[str | None, typer.Option("--cluster", help="Only this cluster.", metavar="CLUSTER")]
Watch = Annotated[
    float | None,
    typer.Option("-w", "--watch", help="Repeat at this interval.", metavar="DURATION", parser=duration(0.1)),
]
Times = Annotated[
    int | None, typer.Option("--times", help="With --watch: end after this many rounds.", metavar="N", min=1)
]


class Link(NamedTuple):
    """The cluster of a command, and its time-out: the options `--namesrv`, `--context` and `--timeout`."""

    namesrv: Namesrv = ""
    context: Context = ""
    timeout_s: Timeout = 5.0

    @property
    def is_default(self) -> bool:
        """Whether nothing names a cluster."""
        named = self.namesrv or self.context or names_servers(os.environ)
        return not named and context_in_force("", "") is None

    def options(self, environment: Mapping[str, str] | None = None) -> ClientOptions:
        """The options of a client."""
        environment = os.environ if environment is None else environment
        found = variables(self.namesrv, self.context, environment)
        options: ClientOptions = {
            "namesrv": self.namesrv.strip(" ;") or listed_in(found),
            "call_timeout_ms": int(self.timeout_s * 1000),
            "access_key": found.get("COMETMQ_ACCESS_KEY") or None,
            "secret_key": found.get("COMETMQ_SECRET_KEY") or None,
        }
        if found.get("COMETMQ_TLS", "").lower() in ("1", "true"):
            from cometmq.remoting.tls import ClientTls

            trusted = found.get("COMETMQ_TLS_TRUST") or None
            options["tls"] = ClientTls(
                trust_cert_path=trusted,
                auth_server=trusted is not None,
                cert_path=found.get("COMETMQ_TLS_CERT") or None,
                key_path=found.get("COMETMQ_TLS_KEY") or None,
                key_password=found.get("COMETMQ_TLS_KEY_PASSWORD") or None,
            )
        return options


NO_LINK: Final = Link()
"""The default of a command's parameter `link`; the options always replace it."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command on an event loop."""
    silence_clients()
    if any(name.startswith(VARIABLE_PREFIX) and name not in CLIENT_VARIABLES for name in os.environ):
        for warning in unknown_variables(os.environ, keys_of_all_servers()):
            note(f"warning: {warning}")
    return asyncio.run(work)


def silence_clients() -> None:
    """Keep the log of clients out of the output."""
    log = logging.getLogger("cometmq")
    if not log.handlers:
        log.addHandler(logging.NullHandler())


def ask(link: Link, work: Callable[[Admin], Awaitable[T]]) -> T:
    """Call `work` with an admin client."""

    async def whole() -> T:
        from cometmq.client.admin.admin import Admin

        async with Admin(**link.options()) as admin:
            return await work(admin)

    return run(whole())


def watch(
    link: Link,
    work: Callable[[Admin], Awaitable[T]],
    show: Callable[[T], None],
    every_s: float | None,
    times: int | None,
) -> None:
    """Call `work` and show its result, once or every `every_s` seconds."""
    if every_s is None:
        show(ask(link, work))
        return

    async def rounds(admin: Admin) -> None:
        left = times
        while left is None or left > 0:
            try:
                result = await work(admin)
            except RemotingError as error:
                note(f"error: {error}")
            else:
                if sys.stdout.isatty():
                    typer.echo("\x1b[2J\x1b[H", nl=False)
                show(result)
                sys.stdout.flush()
            left = None if left is None else left - 1
            if left is None or left > 0:
                await asyncio.sleep(every_s)

    ask(link, rounds)
