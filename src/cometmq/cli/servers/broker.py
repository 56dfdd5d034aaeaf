"""`cometmq broker`: run a broker.

Rules kept here: one file has the keys of the broker and of its store, like Apache's broker.conf. Settings
that requests change are stored in the `-c` file; without one they last as long as the process.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cometmq.cli.commands import single_app
from cometmq.cli.servers.serving import NO_OPTIONS, ServerOptions, resolve_all, say_ready, serve
from cometmq.model.settings import Resolved
from cometmq.remoting.loop import run

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

log = logging.getLogger("cometmq.broker")


RecoverOption = Annotated[
    bool,
    typer.Option(
        "--recover-what-is-left",
        help="Repair a damaged commit log: serve the readable records; consumers skip the lost ones.",
    ),
]


def run_broker(
    namesrv: Annotated[
        str | None,
        typer.Option("-n", "--namesrv", help="Name servers, host:port;host:port.", metavar="ADDRS"),
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", help="Main port; the fast one is two below. 0 takes free ones.")
    ] = None,
    recover_what_is_left: RecoverOption = False,
    options: ServerOptions = NO_OPTIONS,
) -> None:
    """Read the settings, build the broker, run it until a signal stops it.

    Examples:
      cometmq broker -n 127.0.0.1:9876  # ports 10911 and 10909, store in ~/store
      cometmq broker -c broker.conf     # with RocketMQ's own properties file
      cometmq broker -n 127.0.0.1:9876 --set brokerName=broker-b --port 11911
      cometmq broker -c broker.conf -p  # only show settings
    """
    recover = "true" if recover_what_is_left else None
    flags = options.flags(namesrvAddr=namesrv, listenPort=port, recoverWhatIsLeft=recover)
    resolved = load_settings(options.config, flags)
    if not options.begin(resolved, log):
        return
    from cometmq.broker.broker import Broker

    def build() -> Broker:
        broker = Broker(*(each.settings for each in resolved))
        log.info("step 2 of 3, build: %d request codes are served", len(broker.server.handlers.codes))
        return broker

    def ready(broker: Broker) -> None:
        log.info("step 3 of 3, start: ready on %s", broker.address)
        say_started(broker, as_json=options.as_json)

    run(serve(build, ready, log))


def load_settings(config: Path | None, flags: dict[str, str]) -> list[Resolved[Any]]:
    """The settings of broker, store and server: defaults, then the file, then variables, then flags."""
    from cometmq.broker.config import BrokerConfig  # other commands do not need it
    from cometmq.broker.start_checks import refuse_settings
    from cometmq.remoting.server_settings import ServerSettings
    from cometmq.store.config import StoreConfig

    structs = (BrokerConfig, StoreConfig, ServerSettings)
    defaults = {"namesrvAddr": os.environ["NAMESRV_ADDR"]} if "NAMESRV_ADDR" in os.environ else {}
    resolved = resolve_all(structs, defaults, config, "brokerConfigPath", flags)
    refuse_settings(resolved[0].settings, resolved[1].settings)
    return resolved


def say_started(broker: Broker, *, as_json: bool) -> None:
    """Print the ready line; if no name server knows the broker yet, the reason first."""
    trouble = unregistered_text(broker)
    facts = boot_facts(broker)
    if trouble is None:
        say_ready(boot_text(broker), facts, as_json=as_json)
        return
    log.log(logging.WARNING if broker.context.settings.hidden_s else logging.ERROR, "%s", trouble)
    say_ready(trouble, {**facts, "event": "started"}, as_json=as_json)
    broker.context.registration.on_registered.append(
        lambda: say_ready(boot_text(broker), boot_facts(broker), as_json=as_json)
    )


def unregistered_text(broker: Broker) -> str | None:
    """The reason why clients cannot find this broker; None if they can, or need no name server."""
    config, registration = broker.context.settings.broker, broker.context.registration
    servers = broker.context.name_servers
    if registration.registered or not (servers.addresses or servers.are_looked_up):
        return None
    hidden_s = broker.context.settings.hidden_s
    if hidden_s:
        return (
            f"The broker[{config.broker_name}, {broker.address}] runs, but no client finds it for another "
            f"{hidden_s:.0f} s, because disappearTimeAfterStart says so"
        )
    reasons = [
        f"{address} ({registration.failures.get(address, 'no answer yet')})" for address in servers.addresses
    ] or [servers.failure or "none was found yet"]
    return (
        f"The broker[{config.broker_name}, {broker.address}] runs, but no client finds it: it is registered "
        f"with none of its name servers: {', '.join(reasons)}. It goes on trying; start them, or set "
        "namesrvAddr right"
    )


def boot_text(broker: Broker) -> str:
    """The ready line of Apache's broker."""
    config = broker.context.settings.broker
    text = f"The broker[{config.broker_name}, {broker.address}] boot success. serializeType=JSON"
    return f"{text} and name server is {config.namesrv_addr}" if config.namesrv_addr else text


def boot_facts(broker: Broker) -> dict[str, object]:
    config = broker.context.settings.broker
    return {
        "port": broker.port,
        "fastPort": broker.fast_port,
        "address": broker.address,
        "brokerName": config.broker_name,
        "namesrv": config.namesrv_addr or "",
        "registered": sorted(broker.context.registration.registered),
    }


app = single_app("broker", run_broker)
