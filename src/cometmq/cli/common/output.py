"""Output of commands: tables for people, JSON for programs, exit codes for scripts.

Rules kept here:
- Results go to standard output, everything else to standard error.
- Terminals get colours and lines. Elsewhere a table is plain columns, as wide as its content. On a narrow
  terminal long values are folded, or each row becomes a block; nothing is cut off.
- The fields of a row's struct declare both its JSON members and, with `Column`, its table.
- JSON is one document for a result, and one document a line for a stream of results. docs/CLI.md documents
  the members, which are added, never renamed.
- Control characters in text of servers and messages are escaped: it cannot write elsewhere on a terminal, nor
  look like one of our lines.
- An error is one sentence that says what to do next; the exit code tells its class.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import typer

from cometmq.model.errors import CometError, NotFoundError, RemotingError, RouteNotFoundError
from cometmq.model.peer_text import escaped, escaped_json, escaped_lines

if TYPE_CHECKING:
    import msgspec

FAILED: Final = 1  # or something was found that should not be
USAGE: Final = 2
UNREACHABLE: Final = 3  # no server answered
NOT_FOUND: Final = 4
INTERRUPTED: Final = 130  # Ctrl-C

_MISSING_CODES: Final = (17, 22, 26)  # no such topic, nothing found, no such group
_WIDE: Final = 10_000
_MANY_COLUMNS: Final = 6
"""Folding makes a table of this many columns unreadable."""

T = TypeVar("T")
Cell = str | int | float | None
_NUMBERS: Final = (int, float, int | None, float | None)


class UsageError(CometError):
    """A command line that cannot be carried out as it is."""


def exit_code(error: CometError) -> int:
    """The exit code of an error."""
    if isinstance(error, UsageError):
        return USAGE
    if isinstance(error, RemotingError):
        return UNREACHABLE
    if isinstance(error, NotFoundError | RouteNotFoundError) or error.code in _MISSING_CODES:
        return NOT_FOUND
    return FAILED


def print_json(value: object, *, compact: bool = False) -> None:
    """One JSON document; compact means on one line, as one of many."""
    import msgspec

    document = msgspec.json.encode(value, enc_hook=str)
    text = (document if compact else msgspec.json.format(document, indent=2)).decode()
    typer.echo(escaped_json(text))


def say(text: str, *, colour: str | None = None) -> None:
    """One line of a result."""
    typer.secho(escaped(text), fg=colour)


def note(text: str) -> None:
    """A remark beside the result; further lines are indented."""
    typer.echo(escaped_lines(text).replace("\n", "\n  "), err=True)


def print_table(
    titles: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    right: Collection[str] = (),
    marked: Collection[str] = (),
    to_errors: bool = False,
) -> None:
    """A table; columns in `right` are right-aligned, those in `marked` stand out on a terminal.

    With `to_errors` it goes to standard error, where questions go.
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


class Column(NamedTuple):
    """A column of a table: the annotation of a field that is shown."""

    title: str
    text: Callable[[Any], Cell] | None = None
    """What is shown of the value."""
    right: bool | None = None
    """By default numbers are right-aligned, unless `text` formats them."""
    marked: bool = False
    """By default the first column stands out."""


def print_rows(row_type: type[msgspec.Struct], rows: Iterable[msgspec.Struct]) -> None:
    """A table of the fields that have a `Column`."""
    import msgspec

    columns: dict[str, Column] = {}
    numbers: list[str] = []
    for field in msgspec.structs.fields(row_type):
        column = next(
            (each for each in getattr(field.type, "__metadata__", ()) if type(each) is Column), None
        )
        if column is not None:
            columns[field.name] = column
            is_number = column.text is None and field.type.__origin__ in _NUMBERS
            if is_number if column.right is None else column.right:
                numbers.append(column.title)
    titles = [each.title for each in columns.values()]
    cells = [
        [each.text(getattr(row, name)) if each.text else getattr(row, name) for name, each in columns.items()]
        for row in rows
    ]
    marked = [each.title for each in columns.values() if each.marked] or titles[:1]
    print_table(titles, cells, right=numbers, marked=marked)


def listed(
    document: object,
    row_type: type[msgspec.Struct],
    rows: Sequence[msgspec.Struct],
    *,
    as_json: bool,
    compact: bool = False,
    closing: str = "",
) -> None:
    """A result with rows: the document as JSON, or its rows as a table and a closing line."""
    if as_json:
        print_json(document, compact=compact)
        return
    print_rows(row_type, rows)
    if closing:
        say(closing)


def told(document: object, sentence: str, *, as_json: bool) -> None:
    """A result without rows: the document as JSON, or a sentence."""
    if as_json:
        print_json(document)
    else:
        say(sentence)


def shown(document: T, show: Callable[[T], None], *, as_json: bool) -> None:
    """A result with a layout of its own: the document as JSON, or as `show` prints it."""
    if as_json:
        print_json(document)
    else:
        show(document)


@contextmanager
def status_line(name: str, every_s: float) -> Iterator[Callable[[str], None]]:
    """Shows progress on standard error: one changing line on a terminal, elsewhere a line every `every_s`."""
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status(f"{name}: starting") as status:
            yield lambda line: status.update(f"{name}: {line}")
        return
    last_s = time.monotonic() - every_s

    def show(line: str) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= every_s:
            last_s = time.monotonic()
            note(f"{name}: {line}")

    yield show


def joined(values: Iterable[object]) -> str:
    """A cell of several values."""
    return ", ".join(map(str, values))


def pairs_text(values: Mapping[Any, object], separator: str = ", ") -> str:
    """A cell of names and values."""
    return separator.join(f"{name}={value}" for name, value in sorted(values.items()))


def yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


def _width(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    columns = zip(titles, *cells, strict=True)
    return sum(max(map(len, column)) for column in columns) + 3 * (len(titles) - 1)


def _print_blocks(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    for number, row in enumerate(cells):
        if number:
            typer.echo()
        print_pairs(zip(titles, row, strict=True))


def print_pairs(pairs: Iterable[tuple[str, Cell]]) -> None:
    """Names and values, one pair a line."""
    shown = [(escaped(name), cell_text(value)) for name, value in pairs]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        typer.echo(f"{name:<{width}}  {value}".rstrip())


def cell_text(cell: Cell) -> str:
    if cell is None or cell == "":
        return "-"
    return f"{cell:.1f}" if isinstance(cell, float) else escaped(str(cell))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about a name that does not exist: one like it that does."""
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def counted(number: int, noun: str) -> str:
    """`1 topic`, `2 topics`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def time_text(time_ms: int | None) -> str:
    """A time in UTC, to the millisecond; a dash if there is none."""
    if not time_ms or time_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # from a damaged file or a strange broker
        return str(time_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ms % 1000:03}"


def duration_text(duration_ms: int) -> str:
    """A duration in its two largest units, `2h30m`, or in milliseconds if it is shorter than a second."""
    if duration_ms < 1000:
        return f"{duration_ms}ms"
    rest, parts = duration_ms // 1000, []
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, seconds)
        parts.append((count, unit))
    largest = next(at for at, (count, _) in enumerate(parts) if count)
    return "".join(f"{count}{unit}" for count, unit in parts[largest : largest + 2] if count)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before what cannot be undone; without a terminal `--yes` is needed."""
    if yes:
        return
    question = escaped(question)
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody can be asked here; say --yes if this is what you want")
    typer.confirm(question, abort=True, err=True)
