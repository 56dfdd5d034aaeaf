"""The `cometmq` command; `commands` has the table of its subcommands."""

from __future__ import annotations

import logging
import sys
from types import TracebackType
from typing import Annotated

import typer

from cometmq._version import __version__
from cometmq.cli.commands import LazyGroup
from cometmq.cli.common.output import exit_code, note
from cometmq.model.errors import CometError
from cometmq.model.peer_text import PeerTextFilter, escaped_traceback

app = typer.Typer(
    cls=LazyGroup,
    name="cometmq",
    help="Apache RocketMQ's message system in Python.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cometmq {__version__}")
        raise typer.Exit


@app.callback(
    epilog="""
Examples:

  cometmq standalone                    # a name server and a broker, to try things out
  cometmq topic list -n 127.0.0.1:9876  # what there is
  cometmq doctor -n 127.0.0.1:9876      # what is wrong with it

Exit codes: 0 it worked, 1 it failed or something was found, 2 wrong usage, 3 no server answered, 4 not found.
"""
)
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Apache RocketMQ's message system in Python."""


def _show_bug(
    error_type: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:  # pragma: no cover - an exception that nobody expected
    print(escaped_traceback((error_type, error, trace)), file=sys.stderr)


def main() -> None:
    """Run the command; an expected error is one line on standard error and an exit code."""
    if logging.lastResort is not None:
        logging.lastResort.addFilter(PeerTextFilter())
    sys.excepthook = _show_bug
    try:
        app()
    except CometError as error:
        note(f"error: {error}")
        sys.exit(exit_code(error))


if __name__ == "__main__":
    main()
