"""What the documents show works as it stands there."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cometmq import Admin
from cometmq.cli.reference import reference
from cometmq.testing import EmbeddedBroker
from tests.integration.cli.terminal import looks_like
from tests.integration.documents import documents
from tests.integration.documents.documents import ROOT, Snippet, programs, snippets
from tests.waiting import wait_until

PATIENCE_S = 60.0
PAGES = ("docs/PYTHON.md", "docs/PYTHON_MORE.md", "docs/PYTHON_RECIPES.md")
PROGRAMS = [
    (program, shown)
    for page in PAGES
    for program, shown in programs(page)
    # Those for Spark are run in tests/spark/test_guide.py, files by the commands of their page.
    if "pyspark" not in program.text and program.file_name is None
]


def run_program(program: Path) -> str:
    result = subprocess.run(
        [sys.executable, str(program)],
        cwd=program.parent,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def run_until_joined(program: Path, broker: EmbeddedBroker, group: str) -> None:
    """A consumer that runs for ever: wait until it is a member of its group, then stop it as a user does."""
    process = subprocess.Popen([sys.executable, str(program)], stderr=subprocess.PIPE, text=True)
    try:
        with Admin(namesrv=broker.namesrv) as admin:
            wait_until(
                lambda: process.poll() is not None or admin.group_connection(broker.address, group),
                f"a member of {group}, or an end",
                seconds=PATIENCE_S,
            )
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize(("snippet", "shown"), PROGRAMS, ids=[program.name for program, _ in PROGRAMS])
def test_a_program_in_the_documents_runs_as_it_stands(
    snippet: Snippet, shown: str | None, rocketmq: EmbeddedBroker, tmp_path: Path
) -> None:
    """P4, P6, C1: and prints what the page says."""
    program = tmp_path / "test_snippet.py"
    program.write_text(snippet.on(rocketmq.namesrv), encoding="utf-8")
    if "def test_" in snippet.text:
        pytest_run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(program)]
        result = subprocess.run(pytest_run, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert re.search(r"^\d+ passed in ", result.stdout, re.MULTILINE), result.stdout
    elif found := re.search(r'PushConsumer\("(\w+)".*consumer\.run\(\)', snippet.text, re.DOTALL):
        with Admin(namesrv=rocketmq.namesrv) as admin:
            admin.create_topic("orders")
        run_until_joined(program, rocketmq, found[1])
    else:
        printed = run_program(program)
        assert shown is None or looks_like(shown).fullmatch(printed), printed


def test_every_program_of_the_documents_is_run() -> None:
    """Here, in tests/spark/test_guide.py, or by a command of its page that names its file."""
    nowhere = [
        program.name
        for page in documents.PAGES
        for program in snippets(page, "python")
        if program.file_name is None and page not in PAGES and not is_for_spark(program)
    ]
    assert nowhere == []


def is_for_spark(program: Snippet) -> bool:
    return "pyspark" in program.text and program.page in ("README.md", "docs/SPARK.md")


def test_the_configuration_reference_is_what_the_declarations_say() -> None:
    """N2: written again with `python -m cometmq.cli.reference > docs/CONFIGURATION.md`."""
    assert (ROOT / "docs/CONFIGURATION.md").read_text(encoding="utf-8") == reference()


def test_every_link_between_the_documents_leads_somewhere() -> None:
    """The pages name only files that are there."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    dead = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert dead == []
