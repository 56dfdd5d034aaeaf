"""The documentation site has every page, every public name and diagrams that are up to date."""

from __future__ import annotations

import gzip
import importlib
import json
import re
import struct
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

import pytest

from tests.integration.documents.documents import ROOT

DOCS = ROOT / "docs"
INDEX = DOCS / "index.md"


def load_draw() -> ModuleType:
    spec = spec_from_file_location("draw", DOCS / "diagrams" / "draw.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DRAW = load_draw()


def navigation() -> Iterator[str]:
    """The pages in the trees of the index; an entry is `page` or `Title <page>`."""
    for tree in re.findall(r":::\{toctree\}\n(.*?)^:::", INDEX.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        for line in tree.splitlines():
            if line and not line.startswith(":"):
                yield re.sub(r".*<(.*)>", r"\1", line)


def test_every_page_is_in_the_navigation() -> None:
    """Each page once, and no entry without a page."""
    pages = [str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md") if page != INDEX]
    assert sorted(navigation()) == sorted(pages)


def test_the_readme_stays_short() -> None:
    """What does not fit belongs on a page."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 200


@pytest.mark.parametrize(
    ("module", "pages", "elsewhere"),
    [
        ("cometmq", ["cometmq", "settings"], {"__version__"}),
        ("cometmq.aio", ["aio"], {"Message"}),
        ("cometmq.otel", ["otel"], set()),
        ("cometmq.testing", ["testing"], set()),
    ],
)
def test_every_public_name_is_in_the_api_reference(
    module: str, pages: list[str], elsewhere: set[str]
) -> None:
    text = "\n".join(map(api, pages))
    shown = re.findall(r"\.\. auto\w+:: " + re.escape(module) + r"\.(\w+)$", text, re.MULTILINE)
    assert sorted(shown) == sorted(set(importlib.import_module(module).__all__) - elsewhere)


@pytest.mark.parametrize("page", sorted(path.stem for path in (DOCS / "api").glob("*.md")))
def test_every_name_in_the_api_reference_is_there(page: str) -> None:
    for name in re.findall(r"\.\. auto\w+:: (\S+)$", api(page), re.MULTILINE):
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


def api(page: str) -> str:
    return (DOCS / "api" / f"{page}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DRAW.DIAGRAMS)
def test_a_diagram_is_what_the_script_draws(name: str) -> None:
    """Drawn again with `python docs/diagrams/draw.py`."""
    assert (DOCS / "diagrams" / f"{name}.svg").read_text(encoding="utf-8") == DRAW.drawn(name)


def test_the_drawn_record_is_the_layout_of_a_real_one() -> None:
    """B4: the fields at the drawn offsets are those that Apache's own reader found in Apache's log."""
    with gzip.open(ROOT / "tests/data/commitlog-clean.gz") as file:
        log = file.read(1 << 20)
    with gzip.open(ROOT / "tests/data/messages-clean.jsonl.gz") as lines:
        known: dict[str, Any] = json.loads(lines.readline())
    codes = {4: "I", 8: "Q"}
    layout = struct.Struct(">" + "".join(codes[field.size] for field in DRAW.RECORD))
    names = [field.name for field in DRAW.RECORD]
    found = dict(zip(names, layout.unpack_from(log, known["commitLogOffset"]), strict=True))
    assert found["magic"] == 0xDAA320A7
    assert found["total size"] == known["storeSize"]
    assert found["queue id"] == known["queueId"]
    assert found["queue offset"] == known["queueOffset"]
    assert found["physical offset"] == known["commitLogOffset"]
    assert found["born timestamp"] == known["bornTimestamp"]
    assert found["store timestamp"] == known["storeTimestamp"]
    body_at = known["commitLogOffset"] + layout.size
    body_end = body_at + found["body length"]
    topic = known["topic"].encode()
    assert log[body_end : body_end + 1 + len(topic)] == bytes([len(topic)]) + topic
