"""Sphinx configuration of the documentation site; `make docs` builds it into `build/site`.

Rules kept here:
- The pages are plain Markdown that also reads well without the site; links between files work in both.
- Nothing is loaded from other hosts: no fonts, no scripts, no inventories.
- A warning is an error (`-W` in the Makefile).
"""

from __future__ import annotations

import re
import sys
from enum import Enum
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import msgspec
from sphinx.errors import ExtensionError

project = "CometMQ"
author = "the CometMQ authors"
copyright = "the CometMQ authors; Apache License 2.0"
release = version = installed("cometmq")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
root_doc = "index"
html_theme = "furo"
html_title = f"CometMQ {release}"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

# Docstrings write `code` with single backticks, as Markdown does; a name of the reference becomes a link.
default_role = "py:obj"
autodoc_default_options = {"member-order": "bysource"}
autodoc_class_signature = "mixed"
autodoc_inherit_docstrings = True
add_module_names = False
python_use_unqualified_type_names = True

OUTSIDE = {
    "../README.md": "index.md",
    "../CONTRIBUTING.md": "project/contributing.md",
    "../CHANGELOG.md": "project/changelog.md",
    "../bench/RESULTS.md": "project/results.md",
    "../deploy/README.md": "project/deploy.md",
}
"""Files of the repository that pages link to, and the page of the site that shows each."""


def link_to_pages(app: Any, docname: str, source: list[str]) -> None:
    """Let links that leave `docs/` lead to the pages that include these files."""
    for file, page in OUTSIDE.items():
        source[0] = source[0].replace(f"]({file}", f"]({page}")


def from_markdown(app: Any, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Docstrings are Markdown: turn fenced code and lists into their reStructuredText."""
    result: list[str] = []
    in_code = in_list = False
    for line in lines:
        fence = re.match(r"\s*```(\w*)$", line)
        item = re.match(r"\s*(-|\d\.) ", line)
        if fence:
            result += [""] if in_code else ["", f".. code-block:: {fence[1] or 'text'}", ""]
            in_code = not in_code
        elif in_code:
            result.append(f"   {line}")
        else:
            if item and not in_list:
                result.append("")
            in_list = bool(item) or (in_list and bool(line.strip()))
            result.append(line)
    lines[:] = result


LISTED = ("Settings", "Job")
"""How structs are called whose fields readers look up, with their defaults."""


def with_default(app: Any, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Add its default to a field of settings or of a pipeline's job."""
    if what != "attribute" or not name.rpartition(".")[0].endswith(LISTED):
        return
    module, owner, field = name.rsplit(".", 2)
    struct = getattr(sys.modules[module], owner)
    default = {each.name: each.default for each in msgspec.structs.fields(struct)}.get(field)
    if isinstance(default, Enum):
        default = default.value
    if isinstance(default, str | int | float):
        lines += ["", f"Default: ``{default!r}``", ""]


def short_settings(
    app: Any, what: str, name: str, obj: Any, options: object, signature: str, returns: str
) -> tuple[str, str] | None:
    """A struct of many fields lists them below, with their defaults, and not in its signature."""
    return ("()", returns) if what == "class" and name.endswith(LISTED) else None


def nothing_from_elsewhere(app: Any, exception: Exception | None) -> None:
    """Fail if a page of the site loads a script, style, font or image from another host."""
    if exception is not None:
        return
    loads = re.compile(
        r"""<(?:script|link|img|iframe|source|object)\b[^>]*(?:src|href|data)=["']?(?:https?:)?//[^>]*"""
        r"""|(?:url\(|@import\s)\s*["']?(?:https?:)?//[^)\n]*"""
    )
    pages = (each for each in Path(app.outdir).rglob("*") if each.suffix in (".html", ".css", ".svg"))
    found = [f"{page}: {each[0]}" for page in pages for each in loads.finditer(page.read_text("utf-8"))]
    if found:
        raise ExtensionError("pages load from other hosts:\n" + "\n".join(found))


def setup(app: Any) -> None:
    app.connect("build-finished", nothing_from_elsewhere)
    app.connect("source-read", link_to_pages)
    app.connect("autodoc-process-docstring", from_markdown)
    app.connect("autodoc-process-docstring", with_default)
    app.connect("autodoc-process-signature", short_settings)
