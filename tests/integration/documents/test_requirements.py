"""Numbers of requirements in the docstrings of tests stand in `docs/REQUIREMENTS.md`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.integration.documents.documents import ROOT

PAGE = ROOT / "docs" / "REQUIREMENTS.md"
NUMBER = re.compile(r"\b[NBPCDX](?:[1-9]|1[0-9])\b")
NOT_CITED_YET = {"X1", "X2", "X3", "X4", "X5"}
"""Requirements that no test shows yet; take a number out when the first test cites it."""


def requirements() -> list[str]:
    """The numbers of the page, in its order."""
    return re.findall(r"^- \*\*([A-Z]\d+)\*\* \S", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def cited_in(module: Path) -> Iterator[tuple[str, str]]:
    """The numbers in the docstrings of a module's tests and cases, each with its place."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            place = f"{module.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"
            yield from ((number, place) for number in NUMBER.findall(ast.get_docstring(node) or ""))


def citations() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for module in sorted((ROOT / "tests").rglob("*.py")):
        for number, place in cited_in(module):
            found.setdefault(number, []).append(place)
    return found


def test_every_number_that_a_test_cites_is_a_requirement() -> None:
    known = set(requirements())
    assert {number: places for number, places in citations().items() if number not in known} == {}


def test_every_requirement_is_cited_by_a_test() -> None:
    """A requirement that nobody shows is named, and nothing else is left out."""
    assert set(requirements()) - citations().keys() == NOT_CITED_YET


def test_requirements_are_numbered_without_gaps() -> None:
    numbers = requirements()
    for letter in "NBPCDX":
        of_letter = [int(each[1:]) for each in numbers if each[0] == letter]
        assert of_letter == list(range(1, len(of_letter) + 1))
    assert len(numbers) == len(set(numbers))
