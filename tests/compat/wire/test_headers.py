"""The stored facts about Java's header classes are what the jars of Apache RocketMQ 5.3.3 say."""

from __future__ import annotations

from pathlib import Path

from tests.compat.apache import run_java

STORED = Path(__file__).parents[2] / "data" / "header-classes.json"


def test_the_stored_header_classes_are_those_of_the_jars(tmp_path: Path) -> None:
    """The unit tests of codes and headers rest on this file: the output of the program, byte for byte."""
    assert run_java("HeaderClasses.java", home=tmp_path) == STORED.read_text()
