"""The commands in the documents work as they stand there, and print what the pages say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.cli.terminal import Terminal, looks_like
from tests.integration.documents.documents import PAGES, ROOT, SHELLS, Step, every_snippet

OF_THE_CLONE = ("examples", "pyproject.toml")
"""What is where a reader is who has followed the first lines of the documents."""
FIRST_PAGES = ("README.md", "docs/GETTING_STARTED.md")
"""They say how the command is found; on the others it is."""
WITH_COMMANDS = [page for page in PAGES if any(each.is_run_here for each in every_snippet(page))]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_the_commands_of_a_page_print_what_it_says(page: str, tmp_path: Path) -> None:
    """N9: typed one after the other, as a reader does who saves what he is told to save."""
    for name in OF_THE_CLONE:
        (tmp_path / name).symlink_to(ROOT / name)
    with Terminal(tmp_path) as terminal:
        if page not in FIRST_PAGES:
            terminal.run(Step(". .venv/bin/activate", None))
        for block in every_snippet(page):
            if block.file_name is not None:
                terminal.save(block.file_name, block.text)
            elif block.is_run_here:
                for step in block.steps():
                    terminal.run(step, runs_on=block.note == "runs on")


def test_every_block_of_commands_is_run_or_says_why_not() -> None:
    """A block without a language cannot hide, and a reason has to be one."""
    wrong = []
    for page in PAGES:
        for block in every_snippet(page):
            runner = re.fullmatch(r"run by (tests/\S+)", block.note)
            known = block.note in ("", "runs on") or re.fullmatch(r"not run: \S.+", block.note)
            if block.language in ("", "bash", "shell"):
                wrong.append(f"{block.name} is not marked as sh, console or something that is not typed")
            elif runner and page not in (ROOT / runner[1]).read_text(encoding="utf-8"):
                wrong.append(f"{block.name}: {runner[1]} does not run {page}")
            elif block.language in SHELLS and not (known or runner):
                wrong.append(f"{block.name}: {block.note!r} says neither that it runs nor why not")
    assert wrong == []


def test_every_file_of_a_page_is_used_by_a_command_behind_it() -> None:
    """A program that nobody runs may be wrong."""
    unused = []
    for page in PAGES:
        files: dict[str, str] = {}
        for block in every_snippet(page):
            if block.file_name is not None:
                files[block.file_name] = block.name
            elif block.language in SHELLS and not block.note.startswith("not run: "):
                files = {name: place for name, place in files.items() if name not in block.text}
        unused += [f"{place}: {name}" for name, place in files.items()]
    assert unused == []


def test_shown_output_may_differ_in_ids_times_measures_and_where_it_is_cut() -> None:
    """What the other tests compare with."""
    page = "id 7F00000100112233AABB, 0.62 s\nqueue  ── 3 …\n…\nend of 127.0.0.1\n"
    same = "id 0A00000100112233AABBCC, 12.5 s\nqueue ─ 3 or so\nmore\nand more\nend of 127.0.0.1\n"
    assert looks_like(page).fullmatch(same)
    assert looks_like(page).fullmatch(same.replace("more\nand more\n", ""))
    assert not looks_like(page).fullmatch(same.replace("queue ─ 3", "queue ─ 4"))
    assert not looks_like(page).fullmatch(same.replace("127.0.0.1", "127.0.0.2"))
    assert not looks_like(page).fullmatch(same.replace("0A00000100112233AABBCC", "none"))
