"""All commands: their help, their options, and what it costs to ask for help."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cometmq.cli.commands import COMMANDS, load
from cometmq.cli.completion import command_words
from cometmq.cli.main import app

DOCUMENT = Path(__file__).parents[3] / "docs" / "CLI.md"
SERVERS = {"namesrv", "broker", "standalone"}


def leaves() -> Iterator[tuple[str, Any]]:
    """Every command that does something."""
    for name in COMMANDS:
        command = load(name)
        subcommands: dict[str, Any] = getattr(command, "commands", {})
        if not subcommands:
            yield name, command
        for subname, subcommand in subcommands.items():
            yield f"{name} {subname}", subcommand


LEAVES = dict(leaves())


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_has_examples_of_itself_in_its_help(path: str) -> None:
    assert f"cometmq {path}" in LEAVES[path].epilog
    assert LEAVES[path].help


def examples_of(path: str) -> list[str]:
    """The examples in the help of a command, each on one line."""
    found: str = next(part for part in LEAVES[path].epilog.split("\n\n") if part.startswith("  "))
    return found.replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("path", LEAVES)
def test_every_example_fits_on_a_narrow_terminal(path: str) -> None:
    for line in LEAVES[path].epilog.splitlines():
        assert len(line) <= 79 or not line.startswith("  ")


@pytest.mark.parametrize("path", LEAVES)
def test_every_example_can_be_copied(path: str, tmp_path: Path) -> None:
    """A shell understands it, and the command its words; paths lead to a folder that exists."""
    ran = set()
    for example in examples_of(path):
        shell = shlex.shlex(example, posix=True, punctuation_chars=True)
        shell.whitespace_split = True
        words = [str(tmp_path) if word.startswith(("~/", "/")) else word for word in shell]
        begin = words.index("cometmq") + 1
        end = next((at for at in range(begin, len(words)) if words[at] in ("|", ">", "<")), len(words))
        name, *arguments = words[begin:end]
        command = f"{name} {arguments.pop(0)}" if name not in LEAVES else name
        LEAVES[command].make_context(command, arguments)
        ran.add(command)
    assert path in ran


def test_the_help_of_every_command_is_short_to_ask_for(capsys: pytest.CaptureFixture[str]) -> None:
    """`-h` is `--help`, and the examples stand as they are, however narrow the terminal is."""
    for path in ("", "topic", "topic create", "doctor", "pipeline replay"):
        shown = []
        for option in ("-h", "--help"):
            with pytest.raises(SystemExit) as ended:
                app([*path.split(), option], prog_name="cometmq")
            assert ended.value.code == 0
            shown.append(capsys.readouterr().out)
        assert shown[0] == shown[1]
        assert not path or f"cometmq {path}" in shown[0]


@pytest.mark.parametrize("path", sorted(LEAVES.keys() - {"completion", "store dump"}))
def test_every_command_prints_json_if_it_is_asked_to(path: str) -> None:
    """`store dump` prints nothing else, and `completion` prints a script."""
    assert "--json" in {option for parameter in LEAVES[path].params for option in parameter.opts}


@pytest.mark.parametrize("path", sorted(path for path in LEAVES if path not in SERVERS))
def test_every_command_is_documented(path: str) -> None:
    assert f"`cometmq {path}" in DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_sentence_in_the_list_is_that_of_the_command(name: str) -> None:
    assert load(name).help == COMMANDS[name]


def test_asking_for_help_loads_no_command_and_no_client() -> None:
    script = (
        "import sys\n"
        "from cometmq.cli.main import app\n"
        "app(['--help'], standalone_mode=False)\n"
        "heavy = {'asyncio', 'msgspec', 'cometmq.client', 'cometmq.broker', 'cometmq.cli.admin.topic'}\n"
        "sys.exit(bool(heavy & sys.modules.keys()))"
    )
    ended = subprocess.run([sys.executable, "-c", script], stdout=subprocess.DEVNULL, check=False)
    assert ended.returncode == 0


def test_the_shell_completes_commands_and_options() -> None:
    """The script is run by a real bash."""
    script = subprocess.run(
        [sys.executable, "-m", "cometmq.cli.main", "completion", "bash"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    asked = [("topic", "cr"), ("topic", "create", "--que"), ("dlq", "redrive", "--dry"), ("d",)]
    for words in asked:
        script += f"\nCOMP_WORDS=(cometmq {' '.join(words)}); COMP_CWORD={len(words)}"
        script += "\n_cometmq; echo ${COMPREPLY[@]}"
    ended = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    assert ended.stdout.splitlines() == ["create", "--queues", "--dry-run", "dlq doctor"]


def test_the_shell_asks_for_names_of_the_cluster_that_is_typed(tmp_path: Path) -> None:
    """The script runs `cometmq completion topics`, with what the command line says about the cluster."""
    asked = tmp_path / "asked"
    stub = tmp_path / "cometmq"
    stub.write_text(f'#!/bin/sh\necho "$@" >> {asked}\necho "orders orders-eu refunds"\n')
    stub.chmod(0o755)
    script = subprocess.run(
        [sys.executable, "-m", "cometmq.cli.main", "completion", "bash"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    for words in (
        ("topic", "show", "-n", "mq:9876", "or"),
        ("topic", "show", "or"),
        ("group", "reset", "billing", "--context", "prod", "--topic", "ref"),
        ("dlq", "redrive", "bill"),
        ("group", "reset", "billing", "--to", "or"),
        ("topic", "show", "--js"),
        ("topic", "create", "or"),
    ):
        script += f"\nCOMP_WORDS=(cometmq {' '.join(words)}); COMP_CWORD={len(words)}"
        script += "\n_cometmq; echo ${COMPREPLY[@]}"
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ended = subprocess.run(
        ["bash", "-c", script], stdout=subprocess.PIPE, text=True, check=True, env=environment, cwd=tmp_path
    )
    names = ["orders orders-eu", "orders orders-eu", "refunds", "", "", "--json", ""]
    assert ended.stdout.splitlines() == names
    assert asked.read_text().splitlines() == [
        "completion topics -n mq:9876",
        "completion topics",
        "completion topics --context prod",
        "completion groups",
    ]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_the_same_words(shell: str) -> None:
    """Neither shell is needed to look at the script."""
    script = subprocess.run(
        [sys.executable, "-m", "cometmq.cli.main", "completion", shell],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    assert {"redrive", "doctor"} <= set(script.replace('"', " ").split())
    for words in command_words().values():
        for word in words:
            assert word.removeprefix("--") in script


def test_an_unknown_shell_is_wrong_usage() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "cometmq.cli.main", "completion", "csh"], capture_output=True, check=False
    )
    assert ended.returncode == 2
