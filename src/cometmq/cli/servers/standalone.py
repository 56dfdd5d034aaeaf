"""`cometmq standalone`: a name server and a broker in one process, or with several brokers in several.

Rules kept here:
- One folder has everything: `namesrv/` and `broker-0/`, `broker-1/` and so on.
- It listens on the loopback address unless told otherwise.
- Settings changed by request are kept there, too: in `broker-0/broker.properties` and so on, and in
  `namesrv/namesrv.properties`. Flags win over them.
- Log files are small, so that trying it out does not take a gigabyte. A store that exists keeps its sizes.
- Each of several brokers has its own process, started and stopped by this one. If one of them ends by itself,
  all are stopped and the command fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from cometmq.cli.commands import single_app
from cometmq.cli.servers.broker import RecoverOption, load_settings, unregistered_text
from cometmq.cli.servers.namesrv import load_settings as load_namesrv_settings
from cometmq.cli.servers.serving import (
    LogFormat,
    LogFormatOption,
    LogLevel,
    say_ready,
    serve,
    set_up_logging,
    warn,
)
from cometmq.cli.servers.settings import assignment_layer, environment_layer
from cometmq.model.errors import CometError
from cometmq.namesrv.service import Namesrv
from cometmq.ports.descriptors import raise_descriptor_limit
from cometmq.ports.disk import SystemDisk
from cometmq.remoting.loop import run
from cometmq.store.config import StoreConfig
from cometmq.store.tools.survey import kept_sizes

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

PORT_DISTANCE: Final = 10
"""The distance between the main ports of several brokers."""
READY_S: Final = 60.0
STOP_S: Final = 30.0
_ANY: Final = ("0.0.0.0", "::")
_SMALL: Final = {
    "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
    "mappedFileSizeTimerLog": str(8 * 1024 * 1024),
}
"""A broker takes the room of a whole log file at once, 1 GiB by default."""

log = logging.getLogger("cometmq.standalone")


def run_standalone(
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Folder for everything; ~/cometmq by default.", metavar="DIR"),
    ] = None,
    brokers: Annotated[int, typer.Option("--brokers", help="Number of brokers.", min=1, max=64)] = 1,
    namesrv_port: Annotated[
        int, typer.Option("--namesrv-port", help="Port of the name server; 0 takes a free one.")
    ] = 9876,
    port: Annotated[
        int, typer.Option("--port", help="Main port of the first broker; 0 takes free ones.")
    ] = 10_911,
    bind: Annotated[
        str, typer.Option("--bind", help="Address to listen on; 0.0.0.0 lets others in.")
    ] = "127.0.0.1",
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any property of the brokers; may be repeated.", metavar="KEY=VALUE"),
    ] = None,
    recover_what_is_left: RecoverOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the ready line as JSON.")] = False,
    log_level: LogLevel = "warning",
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Build everything, run it until a signal stops it.

    Examples:
      cometmq standalone              # ports 9876 and 10911, data in ~/cometmq
      cometmq standalone --data ./data --set flushDiskType=SYNC_FLUSH
      cometmq standalone --brokers 3  # in processes of their own
      cometmq standalone --port 0 --namesrv-port 0 --json  # show free ports
    """
    set_up_logging(log_level, log_format)
    raise_descriptor_limit()
    root = (data or Path.home() / "cometmq").absolute()
    settings = assignment_layer(assignments or [])
    if recover_what_is_left:
        settings["recoverWhatIsLeft"] = "true"
    plans = [_broker_settings(root, index, port, bind, settings) for index in range(brokers)]

    def build() -> Standalone | Cluster:
        namesrv = _namesrv(root, bind, namesrv_port)
        return (
            Standalone(namesrv, plans[0]) if brokers == 1 else Cluster(namesrv, plans, log_level, log_format)
        )

    def ready(service: Standalone | Cluster) -> None:
        addresses = ", ".join(service.addresses)
        text = f"CometMQ is ready: name server {service.namesrv_address}, broker {addresses}"
        facts = {"namesrv": service.namesrv_address, "brokers": service.addresses}
        say_ready(text, facts, as_json=as_json)

    service = run(serve(build, ready, log))
    if isinstance(service, Cluster) and service.failure is not None:
        raise CometError(service.failure)


def _namesrv(root: Path, bind: str, port: int) -> Namesrv:
    kept = root / "namesrv" / "namesrv.properties"
    flags = {
        "bindAddress": bind,
        "listenPort": str(port),
        "kvConfigPath": str(kept.with_name("kvConfig.json")),
        "configStorePath": str(kept),
    }
    resolved = load_namesrv_settings(kept if kept.is_file() else None, flags)  # the broker's warns
    return Namesrv(*(each.settings for each in resolved))


def _kept_settings(plan: dict[str, str]) -> Path | None:
    """The file with the settings that requests changed, if there is one."""
    path = Path(plan["brokerConfigPath"])
    return path if path.is_file() else None


def _broker_settings(
    root: Path, index: int, port: int, bind: str, settings: dict[str, str]
) -> dict[str, str]:
    """The settings of one broker; the name server's address comes later."""
    values = {
        "brokerName": f"broker-{index}",
        "storePathRootDir": str(root / f"broker-{index}"),
        "brokerConfigPath": str(root / f"broker-{index}" / "broker.properties"),
        "listenPort": str(port + index * PORT_DISTANCE if port else 0),
        "haListenPort": "0",
        "bindAddress": bind,
    }
    if bind not in _ANY:
        values |= {"brokerIP1": bind, "brokerIP2": bind}
    values |= settings
    chosen = values.keys() | environment_layer(os.environ, StoreConfig).values.keys()
    sizes = _SMALL | kept_sizes(SystemDisk(), values)
    return values | {key: size for key, size in sizes.items() if key not in chosen}


class Standalone:
    """A name server and a broker in this process."""

    def __init__(self, namesrv: Namesrv, plan: dict[str, str]) -> None:
        self._namesrv = namesrv
        self._plan = plan
        self._broker: Broker | None = None

    @property
    def namesrv_address(self) -> str:
        return _reachable(self._namesrv)

    @property
    def addresses(self) -> list[str]:
        return [] if self._broker is None else [self._broker.address]

    async def start(self) -> None:
        from cometmq.broker.broker import Broker

        await self._namesrv.start()
        flags = {**self._plan, "namesrvAddr": self.namesrv_address}
        resolved = load_settings(_kept_settings(flags), flags)
        warn(warning for each in resolved for warning in each.warnings)
        broker = self._broker = Broker(*(each.settings for each in resolved))
        await broker.start()
        await broker.context.registration.settled(READY_S)
        trouble = unregistered_text(broker)
        if trouble is not None and not broker.context.settings.hidden_s:
            raise CometError(trouble)

    async def stop(self) -> None:
        if self._broker is not None:
            await self._broker.stop()
        await self._namesrv.stop()


class Cluster:
    """A name server in this process and brokers in processes of their own."""

    def __init__(
        self, namesrv: Namesrv, plans: list[dict[str, str]], log_level: str, log_format: str
    ) -> None:
        self._namesrv = namesrv
        self._plans = plans
        self._log_options = ["--log-level", log_level, "--log-format", log_format]
        self._processes: list[asyncio.subprocess.Process] = []
        self._watch: asyncio.Task[None] | None = None
        self.addresses: list[str] = []
        self.failure: str | None = None
        """Which broker ended by itself, if one did."""

    @property
    def namesrv_address(self) -> str:
        return _reachable(self._namesrv)

    async def start(self) -> None:
        await self._namesrv.start()
        for plan in self._plans:
            self._processes.append(await self._spawn({**plan, "namesrvAddr": self.namesrv_address}))
        async with asyncio.timeout(READY_S):
            self.addresses = [await _ready_address(process) for process in self._processes]
        self._watch = asyncio.ensure_future(self._watch_over())

    async def _spawn(self, settings: dict[str, str]) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "cometmq.cli.main", "broker", "--json", *self._log_options]
        kept = _kept_settings(settings)
        command += ["-c", str(kept)] if kept is not None else []
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        # A group of its own: a signal from the terminal goes to us, and we stop the brokers in order.
        return await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, start_new_session=True
        )

    async def _watch_over(self) -> None:
        waits = {asyncio.ensure_future(process.wait()): process for process in self._processes}
        try:
            ended, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            process = waits[ended.pop()]
            index = self._processes.index(process)
            self.failure = f"broker-{index} ended by itself with code {process.returncode}; see its log above"
            signal.raise_signal(signal.SIGTERM)  # which stops everything in order
        finally:
            for wait in waits:
                wait.cancel()

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        for process in self._processes:
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        await self._namesrv.stop()


async def _ready_address(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        said = msgspec.json.decode(line)
        if said["event"] == "ready":  # it may say before that no name server knows it yet
            return str(said["address"])
    raise CometError("a broker ended before it was ready; its log says why")


def _reachable(namesrv: Namesrv) -> str:
    host = namesrv.state.config.bind_address
    return f"{'127.0.0.1' if host in _ANY else host}:{namesrv.port}"


app = single_app("standalone", run_standalone)
