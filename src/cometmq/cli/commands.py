"""The commands of `cometmq`, and the module of each, which is imported when it is used.

Rules kept here:
- `cometmq --help` imports no command: what it shows of each is in the table here. Each command's own module
  takes its sentence from the table, too.
- A module has a Typer `app`, made by `group_app` if it has commands of its own, else by `single_app`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

import typer
import typer.core
import typer.main

COMMANDS: Final = {
    "namesrv": "Run a name server: brokers register with it, clients ask it for the way to a topic.",
    "broker": "Run a broker: it takes messages, stores them, and gives them to consumers.",
    "standalone": "Run a name server and a broker together: everything that is needed to try things out.",
    "cluster": "Look at the brokers of a cluster, and take one out of use.",
    "topic": "Look at topics, make them, change them and delete them.",
    "group": "Look at consumer groups: how far they are, who is in them; and set them elsewhere.",
    "message": "Send messages, look at them, and find them.",
    "dlq": "Look at dead letters, and send them to their topics once more.",
    "config": "Show, compare and change the settings of running servers.",
    "doctor": "Look at a running cluster from a client's side and say what is wrong with it.",
    "store": "Look at a store directory, verify it, print its messages, make its queues and index again.",
    "pipeline": "Run data pipelines on Spark: archive, replay, mirror, SQL, reports.",
    "bench": "Measure a running system: how much it takes and gives, how fast, and what that costs.",
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


def group_app(name: str) -> typer.Typer:
    """The Typer of a command that has commands of its own."""
    app = typer.Typer(help=COMMANDS[name], no_args_is_help=True, add_completion=False)
    app.callback()(lambda: None)  # so that it stays a group, however few commands it has
    return app


def single_app(name: str, run: Callable[..., None], epilog: str) -> typer.Typer:
    """The Typer of a command that is one by itself."""
    app = typer.Typer(add_completion=False)
    app.command(name, help=COMMANDS[name], epilog=epilog)(run)
    return app
