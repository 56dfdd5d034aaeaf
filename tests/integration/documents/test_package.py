"""The package: what is in the archives, and what a package index shows of it."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from tests.integration.documents.documents import ROOT


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist and a wheel."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def metadata(built: Path) -> Message:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        (name,) = (each for each in wheel.namelist() if each.endswith("METADATA"))
        return Parser().parsestr(wheel.read(name).decode())


def test_every_link_of_the_readme_works_on_a_package_index(metadata: Message) -> None:
    text = str(metadata.get_payload())
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 10
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert "<!--" not in text, "remarks for the tests are not for readers"


def test_an_index_is_told_where_everything_is(metadata: Message) -> None:
    urls = dict(item.split(", ", 1) for item in metadata.get_all("Project-URL", []))
    assert urls.keys() >= {"Homepage", "Documentation", "Changelog", "Issues", "Security"}
    assert metadata.get_all("License-File") == ["LICENSE", "NOTICE"]
    extras = set(metadata.get_all("Provides-Extra", []))
    assert extras == {"bench", "dev", "docs", "otel", "server", "spark"}, "an extra has code that needs it"


def test_windows_gets_no_event_loop_that_it_cannot_have(metadata: Message) -> None:
    (uvloop,) = (each for each in metadata.get_all("Requires-Dist", []) if each.startswith("uvloop"))
    assert "sys_platform != 'win32'" in uvloop.replace('"', "'")


def test_the_source_archive_has_all_that_the_repository_has(built: Path) -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        packed = {name.split("/", 1)[1] for name in archive.getnames()}
    assert set(tracked.splitlines()) - packed == set()


def test_the_wheel_has_the_packages_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = wheel.namelist()
    folders = {name.split("/")[0] for name in names}
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == {
        "cometmq",
        "pyspark_cometmq",
        "pyspark_cometmq_log",
    }
    assert "cometmq/py.typed" in names
