"""`cometmq completion`: completion scripts for bash, zsh and fish.

Rules kept here: a script contains all names, so that the Tab key starts no Python; print it again after an
upgrade.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from cometmq.cli.commands import COMMANDS, load, single_app


class Shell(StrEnum):
    """The supported shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def print_script(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.", metavar="SHELL")]) -> None:
    """Print the script.

    Examples:
      cometmq completion bash > ~/.local/share/bash-completion/completions/cometmq
      cometmq completion zsh > ~/.zfunc/_cometmq          with ~/.zfunc in fpath, before compinit
      cometmq completion fish > ~/.config/fish/completions/cometmq.fish
    """
    words = command_words()
    typer.echo({Shell.BASH: _bash, Shell.ZSH: _zsh, Shell.FISH: _fish}[shell](words))


def command_words() -> dict[str, list[str]]:
    """The words after each command: `{"": […], "topic": […], "topic list": […]}`."""
    words = {"": [*COMMANDS, "--help", "--version"]}
    for name in COMMANDS:
        _add_words(words, name, load(name))
    return words


def _add_words(words: dict[str, list[str]], path: str, command: Any) -> None:
    subcommands: dict[str, Any] = getattr(command, "commands", {})
    options = [
        option
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--")
    ]
    words[path] = [*subcommands, *sorted(options), "--help"]
    for name, subcommand in subcommands.items():
        _add_words(words, f"{path} {name}", subcommand)


def _script(words: dict[str, list[str]], typed: str, end: str) -> str:
    """Functions of bash and zsh differ in how they read the typed words, and in their ends."""
    cases = "\n".join(f'        "{path}") found="{" ".join(next_)}" ;;' for path, next_ in words.items())
    return f"""_cometmq() {{
    local at="" found="" word candidate
    for word in {typed}; do
        candidate="${{at:+$at }}$word"
        case "$candidate" in
            {"|".join(f'"{path}"' for path in words if path)}) at="$candidate" ;;
        esac
    done
    case "$at" in
{cases}
    esac
{end}"""


def _bash(words: dict[str, list[str]]) -> str:
    end = """    local current="${COMP_WORDS[COMP_CWORD]}"
    COMPREPLY=($(compgen -W "$found" -- "$current"))
    [[ ${#COMPREPLY[@]} -eq 0 ]] && COMPREPLY=($(compgen -f -- "$current"))
}
complete -F _cometmq cometmq"""
    return "# bash completion of cometmq\n" + _script(words, '"${COMP_WORDS[@]:1:COMP_CWORD-1}"', end)


def _zsh(words: dict[str, list[str]]) -> str:
    end = """    compadd -- ${=found} || _files
}
_cometmq "$@\""""
    return "#compdef cometmq\n" + _script(words, "${words[2,CURRENT-1]}", end)


def _fish(words: dict[str, list[str]]) -> str:
    lines = ["# fish completion of cometmq", "complete -c cometmq -f"]
    for path, found in words.items():
        parts = path.split()
        condition = "__fish_use_subcommand" if not parts else ""
        if parts:
            condition = " && ".join(f"__fish_seen_subcommand_from {part}" for part in parts)
            deeper = [word for word in found if not word.startswith("-")]
            if deeper:
                condition += f" && not __fish_seen_subcommand_from {' '.join(deeper)}"
        for word in found:
            what = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            lines.append(f"complete -c cometmq -n '{condition}' {what}")
    return "\n".join(lines)


app = single_app("completion", print_script)
