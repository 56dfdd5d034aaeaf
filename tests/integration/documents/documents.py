"""What the documents show: programs, files and commands, taken out of their pages.

Rules that the pages keep:
- A block that begins with `# name.ext` is a file of that name; the commands behind it may use it.
- A block of commands is `sh` (what is typed) or `console` (what is typed, behind `$ `, and what it prints).
- A `text` block behind a program is what it prints.
- A comment on the line before a block of commands says what is special about it: `<!-- not run: why -->`,
  `<!-- run by tests/… -->`, or `<!-- runs on -->` for a command that goes on while the next ones are typed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

_FENCE: Final = re.compile(r"^(?:<!-- ([^\n]*) -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE: Final = re.compile(r"# ([\w/-]+\.\w+)\n")
_NAMESRV: Final = "127.0.0.1:9876"
"""Where the documents say that the name server is."""

ROOT: Final = Path(__file__).parents[3]
PAGES: Final = ("README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")))
SHELLS: Final = ("sh", "console")


class Step(NamedTuple):
    """One command, and what it is said to print; None if nothing is said."""

    command: str
    shown: str | None
    interrupted: bool = False
    """It runs until Ctrl-C, which the page shows as `^C`."""


class Snippet(NamedTuple):
    page: str
    line: int
    language: str
    text: str
    note: str = ""
    """The comment before the block."""

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file_name(self) -> str | None:
        """Under which name the page says to save it."""
        found = _FILE.match(self.text)
        return found[1] if found else None

    @property
    def is_run_here(self) -> bool:
        """Whether these are commands that are run with the others of their page."""
        return self.language in SHELLS and not self.note.startswith(("not run: ", "run by "))

    def on(self, namesrv: str) -> str:
        """The text with the address of the system that the test runs."""
        return self.text.replace(_NAMESRV, namesrv)

    def steps(self) -> Iterator[Step]:
        """The commands of the block, in their order."""
        if self.language == "sh":
            whole = self.text.replace("\\\n", "")
            yield from (Step(line, None) for line in whole.splitlines() if line.strip() and line[0] != "#")
            return
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            interrupted = shown.endswith("^C\n")
            yield Step(command, shown.removesuffix("^C\n"), interrupted)


def every_snippet(page: str) -> Iterator[Snippet]:
    """All blocks of a page, in their order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start(2)) + 1
        yield Snippet(page, line, match[2], match[3], match[1] or "")


def programs(page: str) -> Iterator[tuple[Snippet, str | None]]:
    """The Python programs of a page, each with what it is said to print; None if nothing is said."""
    blocks = list(every_snippet(page))
    for block, following in pairwise([*blocks, Snippet(page, 0, "", "")]):
        if block.language == "python":
            yield block, following.text if following.language == "text" else None


def snippets(page: str, language: str) -> Iterator[Snippet]:
    """What a page shows in one language, in its order."""
    return (each for each in every_snippet(page) if each.language == language)
