"""What the commands that run a server share: settings in layers, the log, signals, and the ready line.

Rules kept here: a start has three steps, each one line in the log: read the configuration, build, start. A
signal stops the server in order, also in the middle of its start. An event is one line of the log, whatever
peers wrote into it.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Protocol

import msgspec
import typer

from cometmq.cli.servers.settings import split_layer
from cometmq.model.errors import SettingsError
from cometmq.model.peer_text import PeerTextFilter
from cometmq.model.settings import Layer, Resolved, resolve


class LogFormat(StrEnum):
    """How lines of the log look."""

    TEXT = "text"
    JSON = "json"


LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", help="Lines for people, or one JSON object a line.")
]
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
    """Something that runs."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def resolve_all(kinds: Sequence[type[msgspec.Struct]], layers: Sequence[Layer]) -> list[Resolved[Any]]:
    """The settings of each kind; later layers win."""
    split = [split_layer(layer, kinds) for layer in layers]
    return [resolve(kind, [parts[index] for parts in split]) for index, kind in enumerate(kinds)]


def origins(resolved: Sequence[Resolved[Any]]) -> str:
    """How many settings came from where."""
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
        faulthandler.enable(sys.__stderr__)  # a process that a signal ends says where it was


def raise_file_limit() -> None:
    """As many open connections and files as the system allows this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def say_ready(text: str, facts: Mapping[str, object], *, as_json: bool) -> None:
    """Tell whoever started the process that it may be used."""
    if as_json:
        typer.echo(msgspec.json.encode({"event": "ready", **facts, "pid": os.getpid()}).decode())
    else:
        typer.echo(text)
    sys.stdout.flush()


async def serve(build: Callable[[], Service], on_ready: Callable[[], None], log: logging.Logger) -> None:
    """Build a service and run it until a signal comes."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    service = build()
    try:
        await service.start()
        on_ready()
        await stopped.wait()
        log.info("stopping")
    finally:
        await service.stop()
    log.info("stopped")
