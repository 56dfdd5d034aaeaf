"""Servers as child processes: started, watched, stopped and hurt on purpose by the tests and benchmarks.

Rules kept here:
- A server lives in a home folder of its own; its console goes to `console.log` there and nothing of it
  touches the real home folder.
- `start` returns only when the server said that it is ready; otherwise it raises with the end of the log.
- A server can be started again after `stop` or `kill`, on the same port and the same files.
- Whatever happens to the test run, no process outlives it.
"""

from __future__ import annotations

import atexit
import os
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Self

READY_SECONDS = 120.0
STOP_SECONDS = 100.0
"""Apache's broker stops its services one after the other, in 15 s on a machine with nothing else to do."""
POLL_SECONDS = 0.05
LOG_TAIL_LINES = 40

# Below the range from which the system hands out ports to outgoing connections, so that no client of a
# neighbouring test can sit on a port between its being found free and its being bound.
# The workers of one run, which know nothing of each other, look at different ports.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
PORTS = range(20_000, 32_000)[WORKER * 12_000 // WORKERS : (WORKER + 1) * 12_000 // WORKERS]

_running: set[subprocess.Popen[bytes]] = set()


class ServerError(Exception):
    """A server did not start, did not stop, or died; the message ends with the tail of its log."""


def free_port(*offsets: int) -> int:
    """A port that is free, and so are the ports at the given distances from it."""
    while True:
        port = random.choice(PORTS)
        if all(_is_free(port + offset) for offset in (0, *offsets)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def properties_text(settings: Mapping[str, str]) -> str:
    """Settings as Java properties text."""
    return "".join(f"{key}={value}\n" for key, value in settings.items())


class Server(ABC):
    """One server process; subclasses say how it is configured and started."""

    ready_text = "boot success"

    def __init__(self, home: Path, port: int) -> None:
        self.home = home
        self.port = port
        self.console = home / "console.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._alive().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @abstractmethod
    def command(self) -> list[str]:
        """The command line; called after `configure`."""

    @abstractmethod
    def configure(self) -> None:
        """Write the configuration files into the home folder."""

    def environment(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.home)}

    def start(self) -> Self:
        assert self._process is None, "already started"
        self.home.mkdir(parents=True, exist_ok=True)
        self.configure()
        begin = self.console.stat().st_size if self.console.exists() else 0
        with self.console.open("ab") as console:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                cwd=self.home,
                env=self.environment(),
                start_new_session=True,
            )
        _running.add(self._process)
        try:
            self._wait_until_ready(begin)
        except BaseException:
            self.kill()
            raise
        return self

    def _wait_until_ready(self, begin: int) -> None:
        ready = self.ready_text.encode()
        deadline = time.monotonic() + READY_SECONDS
        while ready not in self.console.read_bytes()[begin:]:
            if self._alive().poll() is not None:
                raise ServerError(f"{self!r} ended with {self._alive().returncode}\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise ServerError(f"{self!r} was not ready in {READY_SECONDS:g} s\n{self.log_tail()}")
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """An orderly stop: SIGTERM, then wait. A server that does not end is killed and reported."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerError(f"{self!r} did not stop in {STOP_SECONDS:g} s\n{self.log_tail()}") from None
        self._forget()

    def kill(self) -> None:
        """SIGKILL: the process has no say."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._forget()

    def pause(self) -> None:
        """SIGSTOP: the process is silent, its connections stay open."""
        self._alive().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._alive().send_signal(signal.SIGCONT)

    def log_tail(self) -> str:
        lines = self.console.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])

    def _alive(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerError(f"{self!r} is not running")
        return self._process

    def _forget(self) -> None:
        if self._process is not None:
            _running.discard(self._process)
            self._process = None

    def __enter__(self) -> Self:
        return self if self._process is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address}, home={self.home})"


@atexit.register
def _kill_what_is_left() -> None:
    for process in _running:
        process.kill()
