"""The layout of the house: small folders, and no import cycles, also not for types."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import cometmq

ROOT = Path(cometmq.__file__).parent
MOST_MODULES = 22
CYCLES = [{f"cometmq.remoting.{name}" for name in ("calls", "channel", "connection", "endpoint", "handler")}]
"""Each says at its import for types why."""


def modules() -> dict[str, Path]:
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = ("cometmq", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(body: list[ast.stmt]) -> Iterator[str]:
    """What a module imports when it is loaded, and for types."""
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.If):
            yield from imports([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from imports(node.body)


def graph() -> dict[str, set[str]]:
    found = modules()
    packages = {name for name, path in found.items() if path.name == "__init__.py"}
    return {
        name: {other for other in imports(ast.parse(path.read_text()).body) if other in found}
        - packages
        - {name}
        for name, path in found.items()
    }


def reachable(edges: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = list(edges[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += edges[name]
    return seen


def test_no_module_imports_itself_by_way_of_others() -> None:
    edges = graph()
    within = {name: reachable(edges, name) for name in edges}
    cycles: list[set[str]] = []
    for name in sorted(name for name in edges if name in within[name]):
        cycle = {other for other in within[name] if name in within[other]}
        if cycle not in cycles:
            cycles.append(cycle)
    assert cycles == CYCLES


def test_no_folder_has_more_modules_than_a_reader_can_survey() -> None:
    folders = {path.parent for path in modules().values()}
    counts = {
        str(folder.relative_to(ROOT)): sum(path.name != "__init__.py" for path in folder.glob("*.py"))
        for folder in folders
    }
    assert max(counts.values()) <= MOST_MODULES, max(counts, key=lambda name: counts[name])
