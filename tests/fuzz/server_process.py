"""A name server and a broker as the processes that `cometmq` runs, on free ports, with small files.

Around them, in one folder: `servers/` with the store and the configuration files,
which they may change; `beside/`
with files that nobody may change; and their logs.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil

from cometmq.testing.embedded import SMALL
from tests.fuzz.plausible import BROKER_NAME, CLUSTER

START_S: Final = 5.0
"""Within this time a server is ready, whatever was sent to it before it was stopped."""
STOP_S: Final = 30.0
MOST_MEMORY: Final = 2 * 1024**3
"""A server that wants more than this gets a MemoryError, before the machine suffers."""
SETTINGS: Final = {
    **SMALL,
    "brokerName": BROKER_NAME,
    "brokerClusterName": CLUSTER,
    "timerPrecisionMs": "100",
    "mappedFileSizeTimerLog": "65536",
    "timerFlushIntervalMs": "100",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "messageDelayLevel": "1s 2s 3s 4s 5s",
    "channelExpiredTimeout": "1000000000",  # else whoever stops its heartbeats is closed, rightly
}
"""The settings of a broker whose messages of all kinds are soon due."""


class ServerProcess:
    """One `cometmq` command; its log goes to a file, on from where it was if it is started again."""

    def __init__(self, home: Path, log: Path, *arguments: str) -> None:
        self._home = home
        self.log = log
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self.facts: dict[str, Any] = {}
        self.start_s = 0.0
        """How long the last start took."""

    def start(self) -> None:
        """Start it and wait until it is ready, for at most twice as long as it may take."""
        began = time.monotonic()
        environment = {key: value for key, value in os.environ.items() if not key.startswith("COMETMQ_")}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cometmq.cli.main", *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**environment, "HOME": str(self._home)},
                cwd=self._home,
            )
        resource.prlimit(self._process.pid, resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
        out = self._process.stdout
        assert out is not None
        readable, _, _ = select.select([out], [], [], 10 * START_S)
        line = out.readline() if readable else b""
        self.start_s = time.monotonic() - began
        assert line, f"{self._arguments[0]} did not start within {10 * START_S:g} s:\n{self.last_words()}"
        self.facts = json.loads(line)

    @property
    def port(self) -> int:
        return int(self.facts["port"])

    @property
    def running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def last_words(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-3000:]

    def anonymous_bytes(self) -> int:
        """The memory that is the process's own: not what it has mapped of files."""
        info = psutil.Process(self.running.pid).memory_info()
        return int(info.rss - info.shared)

    def descriptors(self) -> int:
        return int(psutil.Process(self.running.pid).num_fds())

    def ask_to_stop(self) -> None:
        self.running.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """Stop it in order; its exit code."""
        self.ask_to_stop()
        return self.wait()

    def wait(self) -> int:
        self.running.communicate(timeout=STOP_S)
        return self.running.returncode

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        if self._process is not None:
            self._process.communicate()


class Servers:
    """A name server and a broker, and the folders around them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "servers"
        self.store = self.home / "store"
        self.beside = root / "beside"
        for folder in (self.home, self.beside):
            folder.mkdir(parents=True)
        self.broker_conf = self.home / "broker.conf"
        settings = {**SETTINGS, "storePathRootDir": str(self.store)}
        self.broker_conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        ns_conf = self.home / "namesrv.conf"
        ns_conf.write_text(
            f"kvConfigPath={self.home}/kvConfig.json\nscanNotActiveBrokerInterval=1000000000\n"
        )
        free = ("--port", "0", "--bind", "127.0.0.1", "--json")
        self.namesrv = ServerProcess(self.home, root / "namesrv.log", "namesrv", "-c", str(ns_conf), *free)
        self.broker: ServerProcess
        files = (self.broker_conf, ns_conf, self.home / "kvConfig.json")
        self.own_files = [*files, *(path.with_name(f"{path.name}.bak") for path in files)]
        """What the servers write beside the store."""

    def start(self) -> None:
        self.namesrv.start()
        arguments = ("-c", str(self.broker_conf), "-n", self.namesrv_address, "--port", "0", "--json")
        self.broker = ServerProcess(self.home, self.root / "broker.log", "broker", *arguments)
        self.broker.start()

    @property
    def namesrv_address(self) -> str:
        return f"127.0.0.1:{self.namesrv.port}"

    @property
    def both(self) -> tuple[ServerProcess, ServerProcess]:
        return self.namesrv, self.broker


@contextmanager
def running_servers(root: Path) -> Iterator[Servers]:
    """Servers that are gone at the end, in whichever way it comes."""
    servers = Servers(root)
    try:
        servers.start()
        yield servers
    finally:
        servers.namesrv.kill()
        if hasattr(servers, "broker"):
            servers.broker.kill()
