"""Names that become parts of paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq.ports.names import UnsafeNameError, child, is_file_name

UNSAFE = [
    "",
    ".",
    "..",
    "/",
    "/etc/passwd",
    "../x",
    "a/../../x",
    "a/b",
    "a/",
    "./a",
    "a\0b",
    "\0",
    "x" * 256,
    "ü" * 128,
    "\ud800",
]
SAFE = ["orders", "%RETRY%a+b", "...", "..x", "x..", "-", " ", "a\\b", "ü" * 127, "x" * 255, "．．", "a\nb"]


@pytest.mark.parametrize("name", UNSAFE)
def test_a_text_that_leads_elsewhere_or_nowhere_is_no_name(name: str) -> None:
    assert not is_file_name(name)
    with pytest.raises(UnsafeNameError, match="cannot be the name of a file in /store"):
        child(Path("/store"), name)
    with pytest.raises(UnsafeNameError):
        child(Path("/store"), "fine", name)


@pytest.mark.parametrize("name", SAFE)
def test_every_other_text_is_a_name_inside_the_folder(name: str, tmp_path: Path) -> None:
    path = child(tmp_path, name, "0")
    path.mkdir(parents=True)
    assert path.resolve().parent.parent == tmp_path.resolve()
