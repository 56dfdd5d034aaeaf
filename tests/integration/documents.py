"""The programs in the documents: taken out of their pages, and pointed at a system of the test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMESRV: Final = "127.0.0.1:9876"
"""Where the documents say that the name server is."""

ROOT: Final = Path(__file__).parents[2]


class Snippet(NamedTuple):
    page: str
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"

    def on(self, namesrv: str) -> str:
        """The text with the address of the system that the test runs."""
        return self.text.replace(_NAMESRV, namesrv)


def snippets(page: str, language: str) -> Iterator[Snippet]:
    """What a page shows in one language, in its order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        if match[1] == language:
            yield Snippet(page, text.count("\n", 0, match.start()) + 1, language, match[2])
