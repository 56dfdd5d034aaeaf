"""`cometmq namesrv`: run a name server.

Rules kept here: settings that requests change are stored in the `-c` file, whatever its `configStorePath`
says, as with Apache. Without `-c` they are stored in ~/namesrv/namesrv.properties, which the next start does
not read, but warns about: Apache does not read it either, and several servers of one user may share that
folder.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any

import typer

from cometmq.cli.commands import single_app
from cometmq.cli.servers.serving import NO_OPTIONS, ServerOptions, resolve_all, say_ready, serve
from cometmq.model.settings import Resolved
from cometmq.namesrv.config import NamesrvConfig, NamesrvSettings
from cometmq.namesrv.service import Namesrv
from cometmq.remoting.loop import run

log = logging.getLogger("cometmq.namesrv")


def run_namesrv(
    port: Annotated[int | None, typer.Option("--port", help="Port to listen on; 0 takes a free one.")] = None,
    options: ServerOptions = NO_OPTIONS,
) -> None:
    """Read the settings, build the server, run it until a signal stops it.

    Examples:
      cometmq namesrv                  # on port 9876, state in ~/namesrv
      cometmq namesrv -c namesrv.conf  # with RocketMQ's own properties file
      cometmq namesrv --port 9877 --set orderMessageEnable=true
      COMETMQ_LISTEN_PORT=9877 cometmq namesrv -p  # only show settings
    """
    resolved = load_settings(options.config, options.flags(listenPort=port))
    settings: NamesrvConfig = resolved[0].settings
    if not options.begin(resolved, log, *_stored_elsewhere(options.config, settings)):
        return

    def build() -> Namesrv:
        server = Namesrv(*(each.settings for each in resolved))
        log.info("step 2 of 3, build: %d request codes are served", len(server.server.handlers.codes))
        return server

    def ready(server: Namesrv) -> None:
        address = f"{settings.bind_address}:{server.port}"
        log.info("step 3 of 3, start: ready on %s", address)
        text = f"The Name Server boot success. serializeType=JSON, address {address}"
        say_ready(text, {"port": server.port}, as_json=options.as_json)

    run(serve(build, ready, log))


def load_settings(config: Path | None, flags: dict[str, str]) -> list[Resolved[Any]]:
    """The settings of name server and server."""
    state = Path.home() / "namesrv"
    defaults = {
        "kvConfigPath": str(state / "kvConfig.json"),
        "configStorePath": str(state / "namesrv.properties"),
    }
    return resolve_all((NamesrvConfig, NamesrvSettings), defaults, config, "configStorePath", flags)


def _stored_elsewhere(config: Path | None, settings: NamesrvConfig) -> list[str]:
    path = settings.config_store_path
    if config is not None or not Path(path).is_file():
        return []
    return [f"{path} has settings that were stored by request; they are read with -c {path} only"]


app = single_app("namesrv", run_namesrv)
