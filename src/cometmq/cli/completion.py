"""`cometmq completion`: completion scripts for bash, zsh and fish.

Rules kept here:
- A script contains all commands and options, so that the Tab key starts no Python for them; print it again
  after an upgrade.
- Names of topics, groups and contexts are asked for with `cometmq completion topics`, which prints nothing if
  no server answers within a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from cometmq.cli.commands import COMMANDS, load, single_app
from cometmq.cli.common.connect import NO_LINK, Link
from cometmq.cli.common.output import say


class Kind(StrEnum):
    """The supported shells, and the names that their scripts ask for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    TOPICS = "topics"
    GROUPS = "groups"
    CONTEXTS = "contexts"


_NAMES: Final = {"TOPIC": Kind.TOPICS, "GROUP": Kind.GROUPS, "FROM": Kind.GROUPS, "CONTEXT": Kind.CONTEXTS}
"""What the value of a parameter with this metavar names."""


def print_script(
    kind: Annotated[
        Kind,
        typer.Argument(help="The shell; or topics, groups or contexts for their names.", metavar="SHELL"),
    ],
    link: Link = NO_LINK,
) -> None:
    """Print the script.

    Examples:
      cometmq completion bash \\
        > ~/.local/share/bash-completion/completions/cometmq
      cometmq completion zsh > ~/.zfunc/_cometmq
      cometmq completion fish > ~/.config/fish/completions/cometmq.fish

    For zsh, ~/.zfunc has to be in fpath before compinit runs. The scripts also complete topics, groups and
    contexts: they ask the cluster of the command that is typed.
    """
    if kind in (Kind.TOPICS, Kind.GROUPS, Kind.CONTEXTS):
        for name in _names(kind, link):
            say(name)
        return
    words = command_words()
    typer.echo({Kind.BASH: _bash, Kind.ZSH: _zsh, Kind.FISH: _fish}[kind](words))


def _names(kind: Kind, link: Link) -> list[str]:
    if kind is Kind.CONTEXTS:
        from cometmq.cli.common.contexts import read_contexts

        return sorted(read_contexts().by_name)
    from cometmq.cli.common.suggestions import names_of

    return names_of(kind, link)


def name_places() -> tuple[dict[str, Kind], dict[str, Kind]]:
    """What the argument of a command names, and what the value of an option of a command names."""
    commands: dict[str, Kind] = {}
    options: dict[str, Kind] = {}
    for name in COMMANDS:
        for path, parameter in _parameters(name, load(name)):
            kind = _NAMES.get((parameter.metavar or "").strip("[]"))
            if kind is None:
                continue
            if parameter.param_type_name == "option":
                options |= dict.fromkeys((f"{path} {option}" for option in parameter.opts), kind)
            elif not path.endswith((" create", " add")):  # what does not exist yet
                commands.setdefault(path, kind)
    return commands, options


def _parameters(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    for parameter in command.params:
        yield path, parameter
    for name, subcommand in getattr(command, "commands", {}).items():
        yield from _parameters(f"{path} {name}", subcommand)


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


def _name_cases(kinds: dict[str, Kind]) -> str:
    """The branches of a `case` that find out which names are asked for."""
    return "\n".join(
        "        " + "|".join(f'"{place}"' for place in kinds if kinds[place] is kind) + f") names={kind} ;;"
        for kind in dict.fromkeys(kinds.values())
    )


def _script(words: dict[str, list[str]], typed: str, current: str, end: str) -> str:
    """Functions of bash and zsh differ in how they read the typed words, and in their ends."""
    cases = "\n".join(f'        "{path}") found="{" ".join(next_)}" ;;' for path, next_ in words.items())
    commands, options = name_places()
    by_option, by_command = _name_cases(options), _name_cases(commands)
    return f"""_cometmq() {{
    local at="" found="" word candidate previous="" names="" current="{current}"
    local -a place
    for word in {typed}; do
        candidate="${{at:+$at }}$word"
        case "$candidate" in
            {"|".join(f'"{path}"' for path in words if path)}) at="$candidate" ;;
        esac
        case "$previous" in
            -n|--namesrv|--context) place+=("$previous" "$word") ;;
        esac
        previous="$word"
    done
    case "$at" in
{cases}
    esac
    case "$at $previous" in
{by_option}
    esac
    [[ "$previous" != -* ]] && case "$at" in
{by_command}
    esac
    if [[ -n "$names" && "$current" != -* ]]; then
        found="$(cometmq completion $names "${{place[@]}}" 2>/dev/null)"
    fi
{end}"""


def _bash(words: dict[str, list[str]]) -> str:
    end = """    COMPREPLY=($(compgen -W "$found" -- "$current"))
    [[ ${#COMPREPLY[@]} -eq 0 ]] && COMPREPLY=($(compgen -f -- "$current"))
}
complete -F _cometmq cometmq"""
    typed, current = '"${COMP_WORDS[@]:1:COMP_CWORD-1}"', "${COMP_WORDS[COMP_CWORD]}"
    return "# bash completion of cometmq\n" + _script(words, typed, current, end)


def _zsh(words: dict[str, list[str]]) -> str:
    end = """    compadd -- ${=found} || _files
}
_cometmq "$@\""""
    return "#compdef cometmq\n" + _script(words, "${words[2,CURRENT-1]}", "${words[CURRENT]}", end)


def _fish(words: dict[str, list[str]]) -> str:
    commands, options = name_places()
    lines = ["# fish completion of cometmq", "complete -c cometmq -f", _FISH_NAMES]
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
            if kind := options.get(f"{path} {word}"):
                what += f" -x -a '(__cometmq_names {kind})'"
            lines.append(f"complete -c cometmq -n '{condition}' {what}")
        if path in commands:
            lines.append(f"complete -c cometmq -n '{condition}' -a '(__cometmq_names {commands[path]})'")
    return "\n".join(lines)


_FISH_NAMES: Final = """function __cometmq_names
    set -l place
    set -l previous ""
    for word in (commandline -opc)
        contains -- "$previous" -n --namesrv --context; and set -a place $previous $word
        set previous $word
    end
    cometmq completion $argv $place 2>/dev/null
end"""


app = single_app("completion", print_script)
