"""The command table of `cometmq`: each command's sentence and module, imported on first use.

Rules kept here:
- `cometmq --help` imports no command: its sentences and theirs come from this table.
- A module has a Typer `app`, made by `group_app` if it has subcommands, else by `single_app`.
- The docstring of a command is its help. Lines under "Examples:", and what follows them, become its epilog.
- A parameter `link` of a command stands for the options `--namesrv` and `--timeout`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar, get_type_hints

import typer
import typer.core
import typer.main

F = TypeVar("F", bound=Callable[..., None])

COMMANDS: Final = {
    "namesrv": "Run a name server: brokers register with it, clients ask it for routes to topics.",
    "broker": "Run a broker: it stores messages and delivers them to consumers.",
    "standalone": "Run a name server and a broker together, to try things out.",
    "cluster": "List brokers, show their state, change their write permission.",
    "topic": "List, show, create, change and delete topics.",
    "group": "List consumer groups, show progress and members, reset offsets.",
    "message": "Send, print, find and trace messages.",
    "dlq": "List and print dead letters, and send them to their topics again.",
    "config": "Show, compare and change the settings of running servers.",
    "doctor": "Examine a running cluster from a client's side, with advice on every problem.",
    "store": "Inspect and verify a store directory, dump messages, rebuild queues and index.",
    "pipeline": "Run data pipelines on Spark: archive, replay, mirror, SQL, reports.",
    "bench": "Measure throughput, latency and cost of a running cluster.",
    "completion": "Print the completion script of a shell.",
}

_MODULES: Final = {
    "namesrv": "servers.namesrv",
    "broker": "servers.broker",
    "standalone": "servers.standalone",
    "cluster": "admin.cluster",
    "topic": "admin.topic",
    "group": "admin.group",
    "message": "admin.message",
    "dlq": "admin.dlq",
    "config": "admin.config",
    "doctor": "doctor.doctor",
    "store": "store",
    "pipeline": "pipeline.app",
    "bench": "bench.app",
    "completion": "completion",
}
"""Where each command is, below `cometmq.cli`."""


class LazyGroup(typer.core.TyperGroup):
    """The root of the command, whose commands are names and sentences until one of them is run."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, help_text in COMMANDS.items():
            self.commands[name] = typer.core.TyperCommand(name, help=help_text)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in COMMANDS:
            self.commands[args[0]] = load(args[0])
        return super().resolve_command(ctx, args)


def load(name: str) -> Any:
    """A command with everything that belongs to it."""
    command = typer.main.get_command(importlib.import_module(f"cometmq.cli.{_MODULES[name]}").app)
    command.name = name
    return command


class CommandGroup(typer.Typer):
    """Registers subcommands: their docstrings as help, and options in the place of a `link`."""

    def __init__(self, name: str) -> None:
        super().__init__(help=COMMANDS[name], no_args_is_help=True, add_completion=False)
        self.callback()(lambda: None)  # keeps it a group, however few subcommands it has

    def command(self, name: str | None = None, **attributes: Any) -> Callable[[F], F]:
        """Register a subcommand."""

        def add(function: F) -> F:
            register = super(CommandGroup, self).command
            register(name, **{**_texts(function), **attributes})(_with_link(function))
            return function

        return add


def group_app(name: str) -> CommandGroup:
    """The Typer of a command with subcommands."""
    return CommandGroup(name)


def single_app(name: str, run: Callable[..., None]) -> typer.Typer:
    """The Typer of a command without subcommands."""
    app = typer.Typer(add_completion=False)
    app.command(name, **{**_texts(run), "help": COMMANDS[name]})(_with_link(run))
    return app


def _texts(function: Callable[..., None]) -> dict[str, Any]:
    """Help and epilog from a docstring; Typer joins the lines of a paragraph, so each example becomes one."""
    about, _, rest = (inspect.getdoc(function) or "").partition("\n\nExamples:\n")
    if not rest:
        return {}
    examples, _, more = rest.partition("\n\n")
    paragraphs = ["Examples:", *examples.splitlines(), *filter(None, [more])]
    return {"help": about, "epilog": "\n" + "\n\n".join(paragraphs) + "\n"}


def _with_link(function: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `link` by the options that make one."""
    signature = inspect.signature(function)
    if "link" not in signature.parameters:
        return function
    from cometmq.cli.common.connect import TIMEOUT_S, Link, Namesrv, Timeout

    hints = get_type_hints(function, include_extras=True)
    options = {"namesrv": (Namesrv, ""), "timeout": (Timeout, TIMEOUT_S)}
    parameters = []
    for each in signature.parameters.values():
        if each.name == "link":
            parameters += [
                inspect.Parameter(name, each.kind, annotation=hint, default=default)
                for name, (hint, default) in options.items()
            ]
        else:
            parameters.append(each.replace(annotation=hints[each.name]))

    @wraps(function)
    def command(*, namesrv: str, timeout: float, **others: Any) -> None:
        function(link=Link(namesrv, timeout), **others)

    command.__dict__["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command
