"""Text of peers in logs and on terminals."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import cometmq
from cometmq.model.peer_text import (
    LOGGERS,
    LONGEST,
    PeerTextFilter,
    escaped,
    escaped_json,
    escaped_lines,
)

FORGED = "orders\n2026-01-01 00:00:00 INFO cometmq.broker all is well"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\x9b31m\x85\x7f\0", r"\x9b31m\x85\x7f\x00"),
        ("a\u2028b\u2029c", r"a\u2028b\u2029c"),
        ("\u202egpj.exe\u202c\u2066x\u2069\u200f", r"\u202egpj.exe\u202c\u2066x\u2069\u200f"),
        ("a\u200bb\ufeff", r"a\u200bb\ufeff"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
        ("Bestellungen für 漢字 😀 [bold]", "Bestellungen für 漢字 😀 [bold]"),
        (r"C:\new", r"C:\new"),
    ],
)
def test_what_is_not_shown_as_it_is_becomes_an_escape(text: str, shown: str) -> None:
    assert escaped(text) == shown
    lines = text.split("\n")
    assert escaped_lines(text) == "\n".join(map(escaped, lines))
    if "\ud800" not in text:
        document = json.dumps(text, ensure_ascii=False)
        assert json.loads(escaped_json(document)) == text
        assert escaped(escaped_json(document)) == escaped_json(document)


def test_a_long_text_is_cut_and_says_so() -> None:
    assert escaped("x" * 10, 4) == "xxxx… (6 more characters)"


@pytest.fixture
def log_text() -> Iterator[io.StringIO]:
    """What a handler of somebody's own writes; the filter is at the logger."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger = logging.getLogger("cometmq.broker")
    logger.addHandler(handler)
    yield text
    logger.removeHandler(handler)


def test_a_name_cannot_forge_a_line_of_the_log(log_text: io.StringIO) -> None:
    logging.getLogger("cometmq.broker").warning("%s deletes topic %s", "10.0.0.1:1", FORGED)
    (line,) = log_text.getvalue().splitlines()
    assert line.endswith(r"deletes topic orders\n2026-01-01 00:00:00 INFO cometmq.broker all is well")


def test_a_message_that_is_logged_is_cut(log_text: io.StringIO) -> None:
    logging.getLogger("cometmq.broker").warning("topic %s", "x" * 100_000)
    assert len(log_text.getvalue()) < LONGEST + 100


def test_a_traceback_stays_readable_and_its_messages_are_escaped(log_text: io.StringIO) -> None:
    try:
        try:
            raise KeyError(FORGED)
        except KeyError as error:
            raise RuntimeError(f"{FORGED}\x1b[2J" + "x" * 100_000) from error
    except RuntimeError:
        logging.getLogger("cometmq.broker").exception("it failed for %s", FORGED)
    lines = log_text.getvalue().splitlines()
    assert lines[0].startswith(r"ERROR it failed for orders\n2026")
    assert lines[1] == "Traceback (most recent call last):"
    assert re.fullmatch(r'  File ".*test_peer_text.py", line \d+, in test_a_traceback_.*', lines[2])
    assert lines[3] == "    raise KeyError(FORGED)"
    assert "The above exception was the direct cause of the following exception:" in lines
    assert lines[-1].startswith(r"RuntimeError: orders\n2026")
    assert r"\x1b[2J" in lines[-1]
    assert len(lines[-1]) < LONGEST + 100
    assert not [line for line in lines if line.startswith("2026")]


def test_a_mistake_in_a_call_of_the_log_is_told_by_logging_itself() -> None:
    record = logging.LogRecord("x", logging.INFO, "f", 1, "%d", ("no number",), None)
    assert PeerTextFilter().filter(record)
    assert record.msg == "%d"


def test_every_logger_of_ours_escapes() -> None:
    sources = Path(cometmq.__file__).parent.rglob("*.py")
    used = {
        name
        for source in sources
        for name in re.findall(r'^\w+ = logging\.getLogger\("cometmq\.(\w+)"\)', source.read_text(), re.M)
    }
    assert used <= set(LOGGERS)
    for name in LOGGERS:
        assert any(isinstance(each, PeerTextFilter) for each in logging.getLogger(f"cometmq.{name}").filters)
