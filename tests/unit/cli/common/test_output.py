"""How commands show results: exit codes, tables, times and questions."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys

import pytest
import typer

from cometmq.cli.common.output import (
    UsageError,
    confirm,
    exit_code,
    note,
    print_json,
    print_pairs,
    print_table,
    say,
    time_text,
)
from cometmq.model.errors import (
    CallTimeoutError,
    ClientError,
    CometError,
    ConnectError,
    NotFoundError,
    ResponseError,
    RouteNotFoundError,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ClientError("x"), 1),
        (ResponseError("x", code=1), 1),
        (UsageError("x"), 2),
        (ConnectError("x"), 3),
        (CallTimeoutError("x"), 3),
        (NotFoundError("x"), 4),
        (RouteNotFoundError("x"), 4),
        (ResponseError("x", code=17), 4),
        (ResponseError("x", code=26), 4),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: CometError, code: int) -> None:
    assert exit_code(error) == code


def test_a_table_that_is_not_on_a_terminal_is_plain_and_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    print_table(("name", "count"), [(long, 7), ("[bold]", None)], right=("count",), marked=("name",))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [["name", "count"], [long, "7"], ["[bold]", "-"]]
    assert all(line == line.rstrip() for line in lines)
    assert len(lines[0]) == len(lines[1])  # numbers end where their title ends


FEW = """
from cometmq.cli.common.output import print_table
print_table(("name", "count"), [("a-rather-long-name-of-a-topic-in-a-narrow-window", 7)], marked=("name",))
"""
MANY = """
from cometmq.cli.common.output import print_table
print_table(tuple("abcdef"), [("first", 1, 2, 3, 4, "x" * 20), ("second", 1, 2, 3, 4, None)])
"""


def on_terminal(columns: int, script: str = FEW, **variables: str) -> str:
    """What a script prints on a terminal of this width."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", **variables}
    environment.pop("CI", None)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=theirs, env=environment)
    os.close(theirs)
    printed = b""
    try:
        while piece := os.read(ours, 4096):
            printed += piece
    except OSError:  # which is how the end of a terminal looks
        pass
    os.close(ours)
    assert process.wait() == 0
    return printed.decode()


def test_a_terminal_gets_colours_and_long_values_are_folded() -> None:
    """Nothing is cut off, however narrow it is."""
    printed = on_terminal(30)
    assert "\x1b[" in printed
    letters = "".join(character for character in printed if character.isalpha())
    assert "topic" in letters
    assert "…" not in printed
    assert "\x1b[1;36m" not in on_terminal(30, NO_COLOR="1")


def test_a_row_of_many_columns_becomes_a_block_on_a_narrow_terminal() -> None:
    wide, narrow = (on_terminal(columns, MANY).replace("\r", "").splitlines() for columns in (100, 30))
    assert len(wide) == 4
    assert narrow[:6] == ["a  first", "b  1", "c  2", "d  3", "e  4", f"f  {'x' * 20}"]
    assert narrow[6:8] == ["", "a  second"]


def test_pairs_stand_in_two_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_pairs([("a", 1), ("longer", None)])
    assert capsys.readouterr().out == "a       1\nlonger  -\n"


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [(0, "-"), (None, "-"), (-1, "-"), (1_700_000_000_123, "2023-11-14 22:13:20.123"), (10**18, str(10**18))],
)
def test_a_time_is_in_utc_to_the_millisecond(time_ms: int | None, text: str) -> None:
    assert time_text(time_ms) == text


class Terminal(io.StringIO):
    """Somebody who can be asked."""

    def isatty(self) -> bool:
        return True


def test_what_cannot_be_taken_back_asks_or_needs_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    confirm("Delete it?", yes=True)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(UsageError, match=r"Delete it\? Nobody can be asked here; say --yes"):
        confirm("Delete it?", yes=False)
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    confirm("Delete it?", yes=False)
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    with pytest.raises(typer.Abort):
        confirm("Delete it?", yes=False)


EVIL = "broker\x1b[2J\x9b31m\u202e[red]\nhealthy: 1 broker"
SHOWN = r"broker\x1b[2J\x9b31m\u202e[red]\nhealthy: 1 broker"


def test_text_of_a_peer_does_nothing_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table((EVIL, "other"), [(EVIL, 1)])
    print_pairs([(EVIL, EVIL)])
    say(EVIL)
    lines = capsys.readouterr().out.splitlines()
    assert [line.startswith(SHOWN) for line in lines] == [True] * 4


def test_further_lines_of_an_error_are_indented(capsys: pytest.CaptureFixture[str]) -> None:
    note(f"error: {EVIL}")
    assert capsys.readouterr().err == "error: " + SHOWN.replace(r"\n", "\n  ") + "\n"


def test_json_has_the_same_value_and_nothing_that_a_terminal_obeys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_json({"name": EVIL})
    text = capsys.readouterr().out
    assert json.loads(text) == {"name": EVIL}
    assert text.isascii()
