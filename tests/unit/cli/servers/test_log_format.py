"""Lines of the log, for people and for programs."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from cometmq.cli.servers.serving import JsonLines, set_up_logging
from cometmq.model.errors import SettingsError


def record(message: str, *arguments: object, failed: bool = False) -> logging.LogRecord:
    failure = None
    if failed:
        try:
            raise ValueError("no")
        except ValueError:
            failure = sys.exc_info()
    made = logging.LogRecord(
        "cometmq.broker", logging.WARNING, __file__, 1, message, arguments, failure, None
    )
    made.created = 1_700_000_000.125
    return made


def test_an_event_is_one_line_of_json() -> None:
    line = JsonLines().format(record("%s says\n“%s”", "a client", "hello"))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.125Z",
        "level": "warning",
        "logger": "cometmq.broker",
        "message": "a client says\n“hello”",
    }


def test_a_failure_has_its_trace_in_the_same_line() -> None:
    line = JsonLines().format(record("it failed", failed=True))
    assert "\n" not in line
    assert "ValueError: no" in json.loads(line)["trace"]


def test_a_level_that_there_is_not_is_refused() -> None:
    with pytest.raises(SettingsError, match="not one of debug, info, warning, error"):
        set_up_logging("loud")
