"""How commands reach a cluster: the options that all of them have, and one admin client for each command.

Rules kept here:
- Name servers come from `--namesrv`, else from COMETMQ_NAMESRV, else from NAMESRV_ADDR. Keys and TLS come
  from the environment only: what is on a command line can be seen by others.
- With `--watch` a command is run again and again on one connection; a round that finds no server says so and
  the next one tries again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar

import typer

from cometmq.cli.common.output import UsageError, note
from cometmq.model.errors import RemotingError

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin
    from cometmq.client.settings import ClientOptions

T = TypeVar("T")

VARIABLES: Final = ("COMETMQ_NAMESRV", "NAMESRV_ADDR")
TIMEOUT_S: Final = 5.0

Namesrv = Annotated[
    str,
    typer.Option(
        "-n",
        "--namesrv",
        help="Name servers, host:port;host:port; else COMETMQ_NAMESRV or NAMESRV_ADDR.",
        metavar="ADDRS",
    ),
]
Timeout = Annotated[
    float, typer.Option("--timeout", help="How long one request may take.", metavar="SECONDS", min=0.1)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Cluster = Annotated[str | None, typer.Option("--cluster", help="Only this cluster.", metavar="CLUSTER")]
Watch = Annotated[
    float | None,
    typer.Option("-w", "--watch", help="Again every so many seconds.", metavar="SECONDS", min=0.1),
]
Times = Annotated[
    int | None, typer.Option("--times", help="With --watch: end after so many times.", metavar="N", min=1)
]


class Link(NamedTuple):
    """Where a command goes."""

    namesrv: str = ""
    timeout_s: float = TIMEOUT_S

    def options(self, environment: Mapping[str, str] | None = None) -> ClientOptions:
        """What its clients are told."""
        found = os.environ if environment is None else environment
        namesrv = self.namesrv or next((found[name] for name in VARIABLES if found.get(name)), "")
        if not namesrv.strip(" ;"):
            raise UsageError("no name server is known; say -n host:9876, or set COMETMQ_NAMESRV")
        options: ClientOptions = {
            "namesrv": namesrv,
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


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command to its end."""
    silence_clients()
    return asyncio.run(work)


def silence_clients() -> None:
    """What clients log is not for the reader of a command."""
    log = logging.getLogger("cometmq")
    if not log.handlers:
        log.addHandler(logging.NullHandler())


def ask(link: Link, work: Callable[[Admin], Awaitable[T]]) -> T:
    """Do something with an admin client."""

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
    """Do something once and show it, or again and again."""
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
