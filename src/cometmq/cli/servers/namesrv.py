"""`cometmq namesrv`: run a name server.

Rules kept here: settings that requests change are stored in the `-c` file, whatever its `configStorePath`
says, as with Apache. Without `-c` they are stored in ~/namesrv/namesrv.properties, which the next start does
not read, but warns about: Apache does not read it either, and several servers of one user may share that
folder.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from cometmq.cli.commands import single_app
from cometmq.cli.servers.serving import (
    AsJson,
    Assignments,
    Bind,
    ConfigFile,
    LogFormat,
    LogFormatOption,
    LogLevel,
    PrintOnly,
    resolve_all,
    say_ready,
    serve,
    set_up,
    warn,
)
from cometmq.cli.servers.settings import assignment_layer, environment_layer, file_layer, print_settings
from cometmq.model.settings import Layer, Resolved
from cometmq.namesrv.config import NamesrvConfig, NamesrvSettings
from cometmq.namesrv.service import Namesrv
from cometmq.remoting.loop import run

log = logging.getLogger("cometmq.namesrv")


def run_namesrv(
    config: ConfigFile = None,
    show: PrintOnly = False,
    port: Annotated[int | None, typer.Option("--port", help="Port to listen on; 0 takes a free one.")] = None,
    bind: Bind = None,
    assignments: Assignments = None,
    as_json: AsJson = False,
    log_level: LogLevel = "info",
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Read the settings, build the server, run it until a signal stops it.

    Examples:
      cometmq namesrv                      on port 9876, state in ~/namesrv
      cometmq namesrv -c namesrv.conf      with RocketMQ's own properties file
      cometmq namesrv --port 9877 --set orderMessageEnable=true
      COMETMQ_LISTEN_PORT=9877 cometmq namesrv -p      show settings, do not start
    """
    flags = assignment_layer(assignments or [])
    flags |= {
        key: str(value) for key, value in (("listenPort", port), ("bindAddress", bind)) if value is not None
    }
    settings, server_settings = load_settings(config, flags)
    warn([*settings.warnings, *_stored_elsewhere(config, settings.settings)])
    if show:
        print_settings([settings, server_settings], as_json=as_json)
        return
    set_up([settings, server_settings], log, log_level, log_format)

    def build() -> Namesrv:
        server = Namesrv(settings.settings, server_settings.settings)
        log.info("step 2 of 3, build: %d request codes are served", len(server.server.handlers.codes))
        return server

    def ready(server: Namesrv) -> None:
        address = f"{settings.settings.bind_address}:{server.port}"
        log.info("step 3 of 3, start: ready on %s", address)
        text = f"The Name Server boot success. serializeType=JSON, address {address}"
        say_ready(text, {"port": server.port}, as_json=as_json)

    run(serve(build, ready, log))


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


app = single_app("namesrv", run_namesrv)
