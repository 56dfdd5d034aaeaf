"""`cometmq namesrv`: run a name server."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from cometmq.cli.settings import (
    assignment_layer,
    environment_layer,
    file_layer,
    print_settings,
    split_layer,
)
from cometmq.model.settings import Layer, Resolved, resolve
from cometmq.namesrv.config import NamesrvConfig, ServerSettings
from cometmq.namesrv.service import Namesrv
from cometmq.remoting.loop import run

HELP = "Run a name server: brokers register with it, clients ask it for the way to a topic."
EPILOG = """
Examples:

  cometmq namesrv                                  on port 9876, state in ~/namesrv

  cometmq namesrv -c namesrv.conf                  with RocketMQ's own properties file

  cometmq namesrv --port 9877 --set orderMessageEnable=true

  COMETMQ_LISTEN_PORT=9877 cometmq namesrv -p      show what is in force, and do not start
"""

log = logging.getLogger("cometmq.namesrv")


def run_namesrv(
    config: Annotated[
        Path | None,
        typer.Option("-c", "--config", help="Properties file with RocketMQ's keys.", metavar="FILE"),
    ] = None,
    show: Annotated[
        bool, typer.Option("-p", "--print", help="Print the settings and where each came from, then exit.")
    ] = False,
    port: Annotated[int | None, typer.Option("--port", help="Port to listen on; 0 takes a free one.")] = None,
    bind: Annotated[str | None, typer.Option("--bind", help="Address to listen on.")] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="Any property; may be repeated.", metavar="KEY=VALUE")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print as JSON: settings, and the ready line.")
    ] = False,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
) -> None:
    """Read the settings, build the server, run it until a signal stops it."""
    flags = assignment_layer(assignments or [])
    if port is not None:
        flags["listenPort"] = str(port)
    if bind is not None:
        flags["bindAddress"] = bind
    settings, server_settings = load_settings(config, flags)
    for warning in settings.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if show:
        print_settings([settings, server_settings], as_json=as_json)
        return
    _set_up_logging(log_level)
    _raise_file_limit()
    run(_serve(settings.settings, server_settings.settings, as_json=as_json))


def load_settings(
    config: Path | None, flags: dict[str, str]
) -> tuple[Resolved[NamesrvConfig], Resolved[ServerSettings]]:
    """The first step: defaults, then the file, then variables, then flags."""
    kinds: tuple[type[msgspec.Struct], ...] = (NamesrvConfig, ServerSettings)
    state = Path.home() / "namesrv"
    defaults = {
        "rocketmqHome": os.environ.get("ROCKETMQ_HOME", ""),
        "kvConfigPath": str(state / "kvConfig.json"),
        "configStorePath": str(config.absolute() if config else state / "namesrv.properties"),
    }
    layers = [Layer("default", defaults)]
    if config is not None:
        layers.append(file_layer(config))
    layers += [environment_layer(os.environ, *kinds), Layer("flag", flags)]
    first, second = zip(*(split_layer(layer, kinds) for layer in layers), strict=True)
    return resolve(NamesrvConfig, first), resolve(ServerSettings, second)


async def _serve(config: NamesrvConfig, settings: ServerSettings, *, as_json: bool) -> None:
    server = Namesrv(config, settings)
    await server.start()
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    if as_json:
        typer.echo(msgspec.json.encode({"event": "ready", "port": server.port, "pid": os.getpid()}).decode())
    else:
        address = f"{config.bind_address}:{server.port}"
        typer.echo(f"The Name Server boot success. serializeType=JSON, address {address}")
    sys.stdout.flush()
    try:
        await stopped.wait()
        log.info("stopping")
    finally:
        await server.stop()


def _set_up_logging(level: str) -> None:
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise typer.BadParameter(
            f"{level!r} is not one of debug, info, warning, error", param_hint="--log-level"
        )
    logging.basicConfig(
        level=number, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )


def _raise_file_limit() -> None:
    """As many open connections as the system allows this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
