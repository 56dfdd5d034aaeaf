"""The command table of `cometmq`: each command's sentence and module, imported on first use.

Rules kept here:
- `cometmq --help` imports no command: its sentences and theirs come from this table.
- A module has a Typer `app`, which is a `CommandGroup` if it has subcommands, else made by `single_app`.
- The docstring of a command is its help. Lines under "Examples:", and what follows them, become its epilog.
  Examples are printed as they stand, however narrow the terminal is, so that they can be copied.
- What does not exist is reported with a name like it that does.
- A parameter of a command whose type is a NamedTuple, such as `Link`, stands for the options that its
  fields declare.
"""

from __future__ import annotations

import importlib
import inspect
import shutil
import textwrap
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

import typer
import typer.core
import typer.main

from cometmq.model.errors import CometError

F = TypeVar("F", bound=Callable[..., None])

COMMANDS: Final = {
    "namesrv": "Run a name server: brokers register with it, clients ask it for routes to topics.",
    "broker": "Run a broker: it stores messages and delivers them to consumers.",
    "standalone": "Run a name server and a broker together, to try things out.",
    "cluster": "List brokers and producers, show their state, change write permissions.",
    "topic": "List, show, create, change and delete topics.",
    "group": "List consumer groups, show progress and members, reset offsets.",
    "message": "Send, print, find, trace and track messages.",
    "dlq": "List and print dead letters, and send them to their topics again.",
    "config": "Show, compare and change the settings of running servers.",
    "doctor": "Examine a running cluster from a client's side, with advice on every problem.",
    "store": "Inspect and verify a store directory, dump messages, rebuild queues and index.",
    "pipeline": "Run data pipelines on Spark: archive, replay, mirror, SQL, reports.",
    "bench": "Measure throughput, latency and cost of a running cluster.",
    "context": "Name clusters with their name servers and keys, and choose one.",
    "completion": "Print the completion script of a shell.",
}

_FOLDERS: Final = {
    "servers": ("namesrv", "broker", "standalone"),
    "admin": ("cluster", "topic", "group", "message", "dlq", "config"),
    "doctor": ("doctor",),
}
_MODULES: Final = {name: f"{folder}.{name}" for folder, names in _FOLDERS.items() for name in names}
_MODULES.update({"pipeline": "pipeline.app", "bench": "bench.app"})
"""Where commands are, below `cometmq.cli`; the others are modules of their name."""


def _print_epilog(epilog: str | None) -> None:
    """Indented paragraphs as they stand, others as wide as the terminal."""
    width = min(shutil.get_terminal_size().columns, 110) - 1
    for text in epilog.strip("\n").split("\n\n") if epilog else ():
        if not text.startswith(" "):
            text = textwrap.fill(text, width, initial_indent=" ", subsequent_indent=" ")
        typer.echo(f"{text}\n")


class ExampleCommand(typer.core.TyperCommand):
    """A command whose help ends with examples."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        epilog, self.epilog = self.epilog, None
        super().format_help(ctx, formatter)
        self.epilog = epilog
        _print_epilog(epilog)


class LazyGroup(typer.core.TyperGroup):
    """The root of the command, whose commands are names and sentences until one of them is run."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.context_settings["help_option_names"] = ["-h", "--help"]  # also of all commands below
        for name, help_text in COMMANDS.items():
            self.commands[name] = typer.core.TyperCommand(name, help=help_text)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        epilog, self.epilog = self.epilog, None
        super().format_help(ctx, formatter)
        self.epilog = epilog
        _print_epilog(epilog)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in COMMANDS:
            self.commands[args[0]] = load(args[0])
        return super().resolve_command(ctx, args)


def load(name: str) -> Any:
    """A command with everything that belongs to it."""
    command = typer.main.get_command(importlib.import_module(f"cometmq.cli.{_MODULES.get(name, name)}").app)
    command.name = name
    return command


class CommandGroup(typer.Typer):
    """Registers subcommands: their docstrings as help, and the options of their parameters."""

    def __init__(self, name: str) -> None:
        super().__init__(help=COMMANDS[name], no_args_is_help=True, add_completion=False)
        self.callback()(lambda: None)  # keeps it a group, however few subcommands it has

    def command(self, name: str | None = None, **attributes: Any) -> Callable[[F], F]:
        """Register a subcommand."""

        def add(function: F) -> F:
            register = super(CommandGroup, self).command
            settings = {"cls": ExampleCommand, **help_texts(function), **attributes}
            register(name, **settings)(_with_options(function))
            return function

        return add


def single_app(name: str, run: Callable[..., None]) -> typer.Typer:
    """The Typer of a command without subcommands."""
    app = typer.Typer(add_completion=False)
    texts = {**help_texts(run), "help": COMMANDS[name]}
    app.command(name, cls=ExampleCommand, **texts)(_with_options(run))
    return app


def help_texts(function: Callable[..., None]) -> dict[str, Any]:
    """Help and epilog from a docstring; the examples are one paragraph, lines of others are joined."""
    about, _, rest = (inspect.getdoc(function) or "").partition("\n\nExamples:\n")
    if not rest:
        return {}
    examples, _, more = rest.partition("\n\n")
    remarks = [part.replace("\n", " ") for part in more.split("\n\n") if part]
    return {"help": about, "epilog": "\n\n".join(["Examples:", examples, *remarks])}


def options_of(fields: type[NamedTuple]) -> list[inspect.Parameter]:
    """The options that the fields of a NamedTuple with a default declare."""
    hints, keyword = get_type_hints(fields, include_extras=True), inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(name, keyword, annotation=hints[name], default=default)
        for name, default in fields._field_defaults.items()
    ]


def _with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter that is a NamedTuple by its options."""
    hints = get_type_hints(function, include_extras=True)
    packed = {name: hint for name, hint in hints.items() if hasattr(hint, "_field_defaults")}
    if not packed:
        return function
    parameters: list[inspect.Parameter] = []
    for each in inspect.signature(function).parameters.values():
        if each.name in packed:
            parameters += options_of(packed[each.name])
        else:
            parameters.append(each.replace(annotation=hints[each.name], kind=each.KEYWORD_ONLY))

    @wraps(function)
    def command(**given: Any) -> None:
        for name, fields in packed.items():
            given[name] = fields(**{field: given.pop(field) for field in fields._fields})
        try:
            function(**given)
        except CometError as error:
            from cometmq.cli.common.suggestions import suggestion

            error.message += suggestion(error, given)
            raise

    command.__dict__["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command
