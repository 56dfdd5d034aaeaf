"""How commands show what they found: tables for people, JSON for programs, and exit codes for scripts.

Rules kept here:
- Results go to standard output, everything else to standard error.
- Colours and lines are for terminals. Elsewhere a table is plain columns, as wide as its content. On a narrow
  terminal long values are folded, or each row becomes a block of its own; nothing is cut off.
- JSON is one document for a result, and one document a line for a stream of results. Its shape is documented
  in docs/CLI.md; members are added, never renamed.
- Text of servers and of messages is shown with its control characters escaped, so that it can neither write
  elsewhere on a terminal nor look like a line of ours. `say` and `note` are for lines, the others do it, too.
- An error is one sentence that says what to do next, and the exit code says of which kind it is.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

import typer

from cometmq.model.errors import CometError, NotFoundError, RemotingError, RouteNotFoundError
from cometmq.model.peer_text import escaped, escaped_json, escaped_lines

FAILED: Final = 1
"""It did not work, or something was found that should not be."""
USAGE: Final = 2
"""The command line is not understood, or needs something that was not given."""
UNREACHABLE: Final = 3
"""No server answered."""
NOT_FOUND: Final = 4
"""What was asked for does not exist."""
INTERRUPTED: Final = 130
"""Somebody pressed Ctrl-C."""

_MISSING_CODES: Final = (17, 22, 26)  # no such topic, nothing found, no such group
_WIDE: Final = 10_000
_MANY_COLUMNS: Final = 6
"""So many columns are not readable any more once they are folded."""

Cell = str | int | float | None


class UsageError(CometError):
    """A command line that cannot be carried out as it is."""


def exit_code(error: CometError) -> int:
    """What a script gets to know of an error."""
    if isinstance(error, UsageError):
        return USAGE
    if isinstance(error, RemotingError):
        return UNREACHABLE
    if isinstance(error, NotFoundError | RouteNotFoundError) or error.code in _MISSING_CODES:
        return NOT_FOUND
    return FAILED


def print_json(value: object, *, compact: bool = False) -> None:
    """One document; on one line if it is one of many."""
    import msgspec

    document = msgspec.json.encode(value, enc_hook=str)
    text = (document if compact else msgspec.json.format(document, indent=2)).decode()
    typer.echo(escaped_json(text))


def say(text: str, *, colour: str | None = None) -> None:
    """One line of a result."""
    typer.secho(escaped(text), fg=colour)


def note(text: str) -> None:
    """Say something about the result that is not the result, on one line or with further ones under it."""
    typer.echo(escaped_lines(text).replace("\n", "\n  "), err=True)


def print_table(
    titles: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    right: Collection[str] = (),
    marked: Collection[str] = (),
    to_errors: bool = False,
) -> None:
    """A table; columns named in `right` are numbers, those in `marked` stand out on a terminal.

    With `to_errors` it goes where questions go, because it is not the result.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[cell_text(cell) for cell in row] for row in rows]
    stream = sys.stderr if to_errors else sys.stdout
    terminal = stream.isatty()
    console = Console(file=stream, highlight=False, width=None if terminal else _WIDE)
    if not to_errors and len(titles) >= _MANY_COLUMNS and _width(titles, cells) > console.width:
        _print_blocks(titles, cells)
        return
    table = Table(box=SIMPLE_HEAD if terminal else None, show_edge=False, pad_edge=False)
    for title in titles:
        justify = "right" if title in right else "left"
        style = "bold cyan" if title in marked else ""
        heading = Text(escaped(title))
        table.add_column(heading, justify=justify, overflow="fold", style=style)  # type: ignore[arg-type]
    for row in cells:
        table.add_row(*map(Text, row))
    with console.capture() as captured:
        console.print(table)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()), err=to_errors)


def _width(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    columns = zip(titles, *cells, strict=True)
    return sum(max(map(len, column)) for column in columns) + 3 * (len(titles) - 1)


def _print_blocks(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    for number, row in enumerate(cells):
        if number:
            typer.echo()
        print_pairs(zip(titles, row, strict=True))


def print_pairs(pairs: Iterable[tuple[str, Cell]]) -> None:
    """Names and values, one a line."""
    shown = [(escaped(name), cell_text(value)) for name, value in pairs]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        typer.echo(f"{name:<{width}}  {value}".rstrip())


def cell_text(cell: Cell) -> str:
    if cell is None or cell == "":
        return "-"
    return f"{cell:.1f}" if isinstance(cell, float) else escaped(str(cell))


def counted(number: int, noun: str) -> str:
    """`1 topic`, `2 topics`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def time_text(time_ms: int | None) -> str:
    """A time in UTC, to the millisecond; a dash if there is none."""
    if not time_ms or time_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # what a damaged file, or a strange broker, says
        return str(time_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ms % 1000:03}"


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that cannot be taken back; where nobody can be asked, `--yes` has to be there."""
    if yes:
        return
    question = escaped(question)
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody can be asked here; say --yes if this is what you want")
    typer.confirm(question, abort=True, err=True)
