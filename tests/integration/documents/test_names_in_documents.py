"""Paths, classes and functions that the documents name are in the repository.

Rules that the pages keep:
- A path in backticks is below `src/cometmq/`, below the root of the repository, or below `tests/`.
- A function is written with parentheses, a method with its class: `partitions_of()`, `CommitLog.append()`. It
  belongs to the path named last before it in its paragraph; a class may also be one that is unique in `src/`.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.integration.documents.documents import ROOT

SOURCE: Final = ROOT / "src" / "cometmq"
PAGES: Final = (
    "README.md",
    "CONTRIBUTING.md",
    *sorted(f"docs/{each.name}" for each in (ROOT / "docs").glob("*.md")),
)
WITH_NAMES: Final = ("docs/ARCHITECTURE.md", "CONTRIBUTING.md")
"""Pages for those who read the source."""
PACKAGES: Final = tuple(
    sorted(each.name for each in SOURCE.iterdir() if each.is_dir() and each.name != "__pycache__")
)
FOLDERS: Final = (*PACKAGES, "tests", "bench", "docs", "deploy", "examples", "src", ".ci")
TEST_FOLDERS: Final = tuple(sorted(each.name for each in (ROOT / "tests").iterdir() if each.is_dir()))

_CODE: Final = re.compile(r"`([^`\n]+)`")
_FENCED: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_PATH: Final = re.compile(r"\.?\w[\w.*-]*/[\w./*-]*")
_CALL: Final = re.compile(r"(?:(\w+)\.)?(\w+)\(\)")
_CLASS: Final = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]*)+")
_NOT_OURS: Final = {"DefaultSource", "BatchCQ"}
"""Spark's name for our class, and a value of RocketMQ's."""


def paragraphs(page: str) -> Iterator[list[str]]:
    """The code words of each paragraph, item or table row of a page, in their order."""
    text = _FENCED.sub("", (ROOT / page).read_text(encoding="utf-8"))
    for paragraph in re.split(r"\n\s*\n|\n(?=\||- |\d+\. )", text):
        yield _CODE.findall(paragraph)


def paths_in(page: str) -> Iterator[str]:
    folders = (*FOLDERS, *TEST_FOLDERS) if page == "docs/GUARANTEES.md" else FOLDERS
    for words in paragraphs(page):
        for word in words:
            if _PATH.fullmatch(word) and (word.endswith(".py") or word.partition("/")[0] in folders):
                yield word


def is_there(path: str) -> bool:
    return any(any(base.glob(path.rstrip("/"))) for base in (SOURCE, ROOT, ROOT / "tests"))


def nearest(path: str) -> str:
    """Where a file may have gone: one of the same name, or one with a similar path."""
    base = SOURCE if path.partition("/")[0] in PACKAGES else ROOT / "tests"
    files = [str(each.relative_to(base)) for each in base.rglob("*.py")]
    named = [each for each in files if Path(each).name == Path(path).name]
    found = named or get_close_matches(path, files, n=2, cutoff=0.5)
    return f"perhaps {' or '.join(found)}" if found else "nothing is similar"


@pytest.mark.parametrize("page", PAGES)
def test_every_path_in_a_document_is_there(page: str) -> None:
    missing = sorted({path for path in paths_in(page) if not is_there(path)})
    assert not missing, "\n".join(f"{path} is not there; {nearest(path)}" for path in missing)


@cache
def definitions(module: Path) -> tuple[set[str], dict[str, ast.ClassDef]]:
    """The functions and the classes of a module."""
    body = ast.parse(module.read_text(encoding="utf-8")).body
    functions = {each.name for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    return functions, {each.name: each for each in body if isinstance(each, ast.ClassDef)}


@cache
def classes() -> dict[str, list[ast.ClassDef]]:
    """All classes of the package by name."""
    found: dict[str, list[ast.ClassDef]] = {}
    for module in SOURCE.rglob("*.py"):
        for name, definition in definitions(module)[1].items():
            found.setdefault(name, []).append(definition)
    return found


def has_method(definition: ast.ClassDef, method: str) -> bool:
    """Whether a class, or one of its bases by name, defines a method."""
    own = (each.name for each in definition.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    if method in own:
        return True
    bases = (ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in definition.bases)
    return any(has_method(each, method) for base in bases for each in classes().get(base, []))


def wrong_names(page: str) -> Iterator[str]:
    for words in paragraphs(page):
        module: Path | None = None
        for word in words:
            if word.endswith(".py"):
                module = SOURCE / word if (SOURCE / word).is_file() else None
            elif call := _CALL.fullmatch(word):
                owner, name = call.groups()
                functions, own = definitions(module) if module else (set(), {})
                if owner is None:
                    right = name in functions or hasattr(builtins, name)
                else:
                    candidates = [own[owner]] if owner in own else classes().get(owner, [])
                    right = len(candidates) == 1 and has_method(candidates[0], name)
                if not right:
                    yield f"{word} (after {module.relative_to(SOURCE) if module else 'no path'})"
            elif _CLASS.fullmatch(word) and word not in classes() and word not in _NOT_OURS:
                yield word


@pytest.mark.parametrize("page", WITH_NAMES)
def test_every_class_and_function_in_a_document_is_there(page: str) -> None:
    wrong = list(wrong_names(page))
    assert not wrong, "\n".join(wrong)


def test_the_rooms_of_the_page_are_those_of_the_package() -> None:
    table = re.findall(r"^\| `(\w+)/` \|", (ROOT / "docs/ARCHITECTURE.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(each for each in table if each in PACKAGES) == sorted(PACKAGES)


def test_a_wrong_name_would_be_found() -> None:
    """The check itself: methods of base classes count, names of other modules do not."""
    log = SOURCE / "store" / "log" / "commit_log.py"
    assert "open_commit_log" in definitions(log)[0]
    assert has_method(classes()["CallTimeoutError"][0], "__init__")
    assert not has_method(classes()["CometError"][0], "no_such_method")
    assert is_there("store/log/commit_log.py")
    assert not is_there("store/log/no_such_file.py")
