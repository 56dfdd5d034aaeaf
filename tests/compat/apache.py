"""The servers of a comparison: Apache's name server and broker, and ours.

This is the one module that tests and benchmarks import; what it takes from `process` and `java` is
re-exported here.

Rules kept here:
- All have the same shape: `start`, `stop`, `kill`, `pause`, `resume`, `address`, `pid`, `with`.
- Every server listens on loopback and keeps its files in its home folder.
- `with` leaves by SIGKILL: an orderly stop of a JVM takes seconds, and tests that are about it call `stop`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from tests.compat.ask import GET_BROKER_RUNTIME_INFO, SUCCESS, ask, brokers_of
from tests.compat.jvm import (
    JAVA_LIB,
    AdminShell,
    JavaError,
    java_command,
    java_environment,
    mqadmin,
    run_java,
)
from tests.compat.process import Server, ServerError, free_port, properties_text
from tests.waiting import wait_until

__all__ = [
    "JAVA_LIB",
    "AdminShell",
    "ApacheBroker",
    "ApacheNamesrv",
    "ApacheServer",
    "Broker",
    "CometBroker",
    "CometNamesrv",
    "JavaError",
    "Server",
    "ServerError",
    "free_port",
    "mqadmin",
    "run_java",
]

REGISTER_SECONDS = 40.0
UPDATE_BROKER_CONFIG = 25

# On a busy machine Apache's broker refuses what waited longer than a fifth of a second, or a page of its log
# that took longer than a second. The tests are about other things.
PATIENT = {"waitTimeMillsInSendQueue": "10000", "osPageCacheBusyTimeOutMills": "10000"}

# A broker listens on its port, two below it (the fast port) and one above it (replication).
BROKER_PORT_OFFSETS = (-2, 1)


class _Configured(Server):
    """A server that reads one properties file, the same one again when it is started again."""

    def __init__(self, home: Path, port: int, settings: Mapping[str, str], env: Mapping[str, str]) -> None:
        super().__init__(home, port)
        self.settings = dict(settings)
        self.config_file = home / "server.properties"
        self._env = dict(env)

    def configure(self) -> None:
        # A server may rewrite its file while it runs, and a later start has to see that.
        if not self.config_file.exists():
            self.config_file.write_text(properties_text(self.settings))


class ApacheServer(_Configured):
    """A server of the jars."""

    common_java_opts: ClassVar[Sequence[str]] = ()
    """What holds for all servers of a run."""
    main_class: str
    heap: str
    java_opts: Sequence[str]

    def command(self) -> list[str]:
        options = (f"-Xms{self.heap}", f"-Xmx{self.heap}", *self.common_java_opts, *self.java_opts)
        return java_command(self.main_class, "-c", str(self.config_file), home=self.home, options=options)

    def environment(self) -> dict[str, str]:
        return {**java_environment(self.home), **self._env}


class ApacheNamesrv(ApacheServer):
    """Apache's name server."""

    main_class = "org.apache.rocketmq.namesrv.NamesrvStartup"

    def __init__(
        self,
        home: Path,
        settings: Mapping[str, str] = {},
        port: int | None = None,
        heap: str = "256m",
        java_opts: Sequence[str] = (),
        env: Mapping[str, str] = {},
    ) -> None:
        port = port or free_port()
        super().__init__(home, port, {**namesrv_settings(port), **settings}, env)
        self.heap = heap
        self.java_opts = java_opts


class Broker(_Configured):
    """A broker, small: files of a few megabytes, and no waiting for other members."""

    def __init__(
        self,
        home: Path,
        namesrv: str,
        name: str = "broker-a",
        settings: Mapping[str, str] = {},
        port: int | None = None,
        env: Mapping[str, str] = {},
    ) -> None:
        port = port or free_port(*BROKER_PORT_OFFSETS)
        super().__init__(home, port, {**broker_settings(home, namesrv, name, port), **settings}, env)
        self.name = name

    def is_registered(self, namesrv_address: str) -> bool:
        return self.address in brokers_of(namesrv_address).get(self.name, {}).values()

    def wait_registered(self, *namesrv_addresses: str) -> None:
        """Wait until these name servers know the broker, and it can tell about itself.

        Being ready means neither: Apache's registers later, and its statistics begin a second after that.
        """
        for address in namesrv_addresses:
            wait_until(
                partial(self._is_registered_at_last, address),
                seconds=REGISTER_SECONDS,
                what=f"{self.name} is registered with {address}",
            )
        wait_until(
            lambda: ask(self.address, GET_BROKER_RUNTIME_INFO).code == SUCCESS,
            seconds=REGISTER_SECONDS,
            what=f"{self.name} has statistics",
        )

    def _is_registered_at_last(self, namesrv_address: str) -> bool:
        if self.is_registered(namesrv_address):
            return True
        self.hurry_registration()
        return self.is_registered(namesrv_address)

    def hurry_registration(self) -> None:
        """Have a broker register at once that would leave that for later."""


class ApacheBroker(ApacheServer, Broker):
    """Apache's broker."""

    main_class = "org.apache.rocketmq.broker.BrokerStartup"

    def __init__(
        self,
        home: Path,
        namesrv: str,
        name: str = "broker-a",
        settings: Mapping[str, str] = {},
        port: int | None = None,
        heap: str = "512m",
        java_opts: Sequence[str] = (),
        env: Mapping[str, str] = {},
    ) -> None:
        Broker.__init__(self, home, namesrv, name, {**PATIENT, **settings}, port, env)
        self.heap = heap
        self.java_opts = java_opts

    def hurry_registration(self) -> None:
        """Set its permission, which makes the broker register at once.

        One that has not yet looked which name servers are reachable leaves its first registration out, and
        the next one would come ten seconds later.
        """
        assert ask(self.address, UPDATE_BROKER_CONFIG, body=b"brokerPermission=6\n").code == SUCCESS


class _CometServer(_Configured):
    """A server of ours, run the way a user runs it."""

    subcommand: str

    def command(self) -> list[str]:
        return [sys.executable, "-m", "cometmq.cli.main", self.subcommand, "-c", str(self.config_file)]

    def environment(self) -> dict[str, str]:
        return {**java_environment(self.home), "PYTHONUNBUFFERED": "1", **self._env}


class CometNamesrv(_CometServer):
    """Our name server."""

    subcommand = "namesrv"

    def __init__(
        self,
        home: Path,
        settings: Mapping[str, str] = {},
        port: int | None = None,
        env: Mapping[str, str] = {},
    ) -> None:
        port = port or free_port()
        super().__init__(home, port, {**namesrv_settings(port), **settings}, env)


class CometBroker(_CometServer, Broker):
    """Our broker."""

    subcommand = "broker"


def namesrv_settings(port: int) -> dict[str, str]:
    """The settings that every name server of a test has."""
    return {"listenPort": str(port), "bindAddress": "127.0.0.1"}


def broker_settings(home: Path, namesrv: str, name: str, port: int) -> dict[str, str]:
    """The settings that every broker of a test has."""
    store = home / "store"
    return {
        "brokerClusterName": "DefaultCluster",
        "brokerName": name,
        "brokerId": "0",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "listenPort": str(port),
        "namesrvAddr": namesrv,
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        "mappedFileSizeCommitLog": str(16 << 20),
        "mappedFileSizeConsumeQueue": "600000",
        "enablePropertyFilter": "true",
    }
