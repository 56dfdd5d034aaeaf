"""Common parts of the commands that run a server: options, log, signals, ready line.

Rules kept here: a start has three steps, each one line in the log: configuration, build, start. A signal
stops the server in order, also during its start. An event is one line of the log, whatever peers wrote into
it.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, Protocol, TypeVar

import msgspec
import typer

from cometmq.cli.servers.settings import (
    assignment_layer,
    environment_layer,
    file_layer,
    keys_of_all_servers,
    print_settings,
    split_layer,
    unknown_variables,
)
from cometmq.model.errors import SettingsError
from cometmq.model.peer_text import PeerTextFilter
from cometmq.model.settings import Layer, Resolved, resolve
from cometmq.ports.descriptors import raise_descriptor_limit
from cometmq.ports.stop_signals import StopSignals


class LogFormat(StrEnum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


ConfigFile = Annotated[
    Path | None, typer.Option("-c", "--config", help="Properties file with RocketMQ's keys.", metavar="FILE")
]
PrintOnly = Annotated[
    bool, typer.Option("-p", "--print", help="Print the settings and where each came from, then exit.")
]
Bind = Annotated[str | None, typer.Option("--bind", help="Address to listen on.")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", help="Any property; may be repeated.", metavar="KEY=VALUE")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON: settings, and the ready line.")]
LogLevel = Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")]
LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", help="Lines for people, or one JSON object a line.")
]


class ServerOptions(NamedTuple):
    """The options of every server."""

    config: ConfigFile = None
    show: PrintOnly = False
    bind: Bind = None
    assignments: Assignments = None
    as_json: AsJson = False
    log_level: LogLevel = "info"
    log_format: LogFormatOption = LogFormat.TEXT

    def flags(self, **own: object) -> dict[str, str]:
        """The settings of the command line, with those of further flags that are given."""
        given = {"bindAddress": self.bind, **own}
        named = {key: str(value) for key, value in given.items() if value is not None}
        return {**assignment_layer(self.assignments or []), **named}

    def begin(self, resolved: Sequence[Resolved[Any]], log: logging.Logger, *warnings: str) -> bool:
        """Step 1 of a start: the log and the limits of the process; False if settings are only shown."""
        warn([*(warning for each in resolved for warning in each.warnings), *warnings])
        if self.show:
            print_settings(resolved, as_json=self.as_json)
            return False
        set_up_logging(self.log_level, self.log_format)
        log.info("step 1 of 3, configuration: %s", origins(resolved))
        raise_descriptor_limit()
        return True


NO_OPTIONS: Final = ServerOptions()
_TEXT_LINE: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"


class JsonLines(logging.Formatter):
    """Each event as one line of JSON: time (UTC), level, logger, message and, of a failure, its trace."""

    def format(self, record: logging.LogRecord) -> str:
        event = {
            "time": _moment(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            event["trace"] = record.exc_text or self.formatException(record.exc_info)
        return msgspec.json.encode(event).decode()


def _moment(seconds: float) -> str:
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


class Service(Protocol):
    """Everything that runs has this lifecycle."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


S = TypeVar("S", bound=Service)


def resolve_all(
    structs: Sequence[type[msgspec.Struct]],
    defaults: Mapping[str, str],
    config: Path | None,
    path_key: str,
    flags: Mapping[str, str],
) -> list[Resolved[Any]]:
    """The settings of each struct: defaults, then the `-c` file, then variables, then flags.

    The path of the file is the setting `path_key`.
    """
    layers = [Layer("default", {"rocketmqHome": os.environ.get("ROCKETMQ_HOME", ""), **defaults})]
    if config is not None:
        layers += [file_layer(config), Layer("-c", {path_key: str(config.absolute())})]
    layers += [environment_layer(os.environ, *structs), Layer("flag", flags, is_strict=True)]
    split = [split_layer(layer, structs) for layer in layers]
    resolved = [resolve(struct, [parts[index] for parts in split]) for index, struct in enumerate(structs)]
    resolved[0].warnings.extend(unknown_variables(os.environ, keys_of_all_servers()))
    return resolved


def origins(resolved: Sequence[Resolved[Any]]) -> str:
    """The number of settings by origin."""
    counts = Counter(origin for each in resolved for origin in each.origins.values() if origin != "default")
    return ", ".join(f"{count} from {origin}" for origin, count in counts.items()) or "all defaults"


def set_up_logging(level: str, form: str = LogFormat.TEXT) -> None:
    """Log to standard error, a line an event, as text or as JSON."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise SettingsError(f"--log-level {level!r} is not one of debug, info, warning, error")
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(PeerTextFilter())
    is_json = form == LogFormat.JSON
    handler.setFormatter(JsonLines() if is_json else logging.Formatter(_TEXT_LINE))
    logging.basicConfig(level=number, handlers=[handler])
    if sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)  # a process killed by a signal prints its stack


def say_ready(text: str, facts: Mapping[str, object], *, as_json: bool) -> None:
    """Print the ready line."""
    if as_json:
        typer.echo(msgspec.json.encode({"event": "ready", **facts, "pid": os.getpid()}).decode())
    else:
        typer.echo(text)
    sys.stdout.flush()


def warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)


async def serve(build: Callable[[], S], on_ready: Callable[[S], None], log: logging.Logger) -> S:
    """Build a service and run it until a signal comes; further signals say how the stop is going."""
    stopped = asyncio.Event()
    is_ready = False

    def again(seconds: float) -> None:
        doing = "stopping" if is_ready else "still starting, and going to stop after that,"
        log.warning("%s since %.1f s; kill -9 ends it at once, and the next start recovers", doing, seconds)

    StopSignals(stopped.set, again).receive_on_loop()
    service = build()
    try:
        await service.start()
        is_ready = True
        on_ready(service)
        await stopped.wait()
        log.info("stopping")
    finally:
        await service.stop()
    log.info("stopped")
    return service
