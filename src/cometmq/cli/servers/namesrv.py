"""`cometmq namesrv`: run a name server.

Rules kept here:
- What requests change is stored in the `-c` file, whatever `configStorePath` in it says, as Apache stores it.
  Without `-c` it is stored in ~/namesrv/namesrv.properties, and the next start says so and does not read it:
  Apache does not read it either, and several servers of one user may share that folder.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from cometmq.cli.commands import single_app
from cometmq.cli.servers.serving import (
    LogFormat,
    LogFormatOption,
    origins,
    raise_file_limit,
    resolve_all,
    say_ready,
    serve,
    set_up_logging,
)
from cometmq.cli.servers.settings import assignment_layer, environment_layer, file_layer, print_settings
from cometmq.model.settings import Layer, Resolved
from cometmq.namesrv.config import NamesrvConfig, NamesrvSettings
from cometmq.namesrv.service import Namesrv
from cometmq.remoting.loop import run

EXAMPLES: Final = """
cometmq namesrv                      on port 9876, state in ~/namesrv
cometmq namesrv -c namesrv.conf      with RocketMQ's own properties file
cometmq namesrv --port 9877 --set orderMessageEnable=true
COMETMQ_LISTEN_PORT=9877 cometmq namesrv -p      show settings, do not start
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
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Read the settings, build the server, run it until a signal stops it."""
    flags = assignment_layer(assignments or [])
    if port is not None:
        flags["listenPort"] = str(port)
    if bind is not None:
        flags["bindAddress"] = bind
    settings, server_settings = load_settings(config, flags)
    for warning in [*settings.warnings, *_stored_elsewhere(config, settings.settings)]:
        typer.echo(f"warning: {warning}", err=True)
    if show:
        print_settings([settings, server_settings], as_json=as_json)
        return
    set_up_logging(log_level, log_format)
    log.info("step 1 of 3, configuration: %s", origins([settings, server_settings]))
    raise_file_limit()
    _serve(settings.settings, server_settings.settings, as_json=as_json)


def load_settings(
    config: Path | None, flags: dict[str, str]
) -> tuple[Resolved[NamesrvConfig], Resolved[NamesrvSettings]]:
    """The first step: defaults, then the file, then variables, then flags."""
    kinds: tuple[type[msgspec.Struct], ...] = (NamesrvConfig, NamesrvSettings)
    state = Path.home() / "namesrv"
    defaults = {
        "rocketmqHome": os.environ.get("ROCKETMQ_HOME", ""),
        "kvConfigPath": str(state / "kvConfig.json"),
        "configStorePath": str(state / "namesrv.properties"),
    }
    layers = [Layer("default", defaults)]
    if config is not None:
        layers += [file_layer(config), Layer("-c", {"configStorePath": str(config.absolute())})]
    layers += [environment_layer(os.environ, *kinds), Layer("flag", flags)]
    config_settings, server_settings = resolve_all(kinds, layers)
    return config_settings, server_settings


def _stored_elsewhere(config: Path | None, settings: NamesrvConfig) -> list[str]:
    path = settings.config_store_path
    if config is not None or not Path(path).is_file():
        return []
    return [f"{path} has settings that were stored by request; they are read with -c {path} only"]


def _serve(config: NamesrvConfig, settings: NamesrvSettings, *, as_json: bool) -> None:
    servers: list[Namesrv] = []

    def build() -> Namesrv:
        servers.append(Namesrv(config, settings))
        log.info("step 2 of 3, build: %d request codes are served", len(servers[0].server.handlers.codes))
        return servers[0]

    def ready() -> None:
        host, port = config.bind_address, servers[0].port
        log.info("step 3 of 3, start: ready on %s:%d", host, port)
        text = f"The Name Server boot success. serializeType=JSON, address {host}:{port}"
        say_ready(text, {"port": port}, as_json=as_json)

    run(serve(build, ready, log))


app = single_app("namesrv", run_namesrv, EXAMPLES)
