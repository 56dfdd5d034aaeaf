"""The root of the `cometmq` command."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cometmq._version import __version__
from cometmq.cli import broker, message, namesrv, standalone, store
from cometmq.model.errors import CometError

app = typer.Typer(
    name="cometmq",
    help="Apache RocketMQ's message system in Python.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("namesrv", help=namesrv.HELP, epilog=namesrv.EPILOG)(namesrv.run_namesrv)
app.command("broker", help=broker.HELP, epilog=broker.EPILOG)(broker.run_broker)
app.command("standalone", help=standalone.HELP, epilog=standalone.EPILOG)(standalone.run_standalone)
app.add_typer(message.app, name="message", help=message.HELP)
app.add_typer(store.app, name="store", help=store.HELP)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cometmq {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Apache RocketMQ's message system in Python."""


def main() -> None:
    """Run the command; an expected error is one line on standard error and exit code 1."""
    try:
        app()
    except CometError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
