"""A shell on a terminal for commands of the documents: what a reader types, and what he gets to see.

Rules kept here:
- Every command runs in a shell of its own on a wide pseudo-terminal, so that programs print what they print
  for people. Variables and the current folder stay from one command to the next.
- The home of the reader is a folder of the test, and the ports of the documents become free ones, in what is
  typed as well as in what is expected.
- Everything that was left running is stopped with Ctrl-C at the end, and has to stop in order. Nothing stays
  in the folder: each of its stores has reserved a gigabyte.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import random
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

from tests.integration.documents.documents import Step

PATIENCE_S: Final = 90.0
COLUMNS: Final = 120
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_INTERRUPTED: Final = (0, 130)

_SHELL: Final = """
source "$STATE"
{command}
code=$?
{{ export -p; printf 'cd -- %q\\n' "$PWD"; }} > "$STATE"
exit $code
"""

_LOOKS_LIKE: Final = (
    (r"[0-9A-F]{16,}", r"[0-9A-F]{16,}"),  # the id of a message
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}"),
    (r"(?<![\d.:])\d+[.,]\d+(?![\d.])", r"\d[\d.,]*"),  # something measured
    (r"[ ─]+", r"[ ─]+"),  # columns are as wide as what is in them
    (r"…", r".*"),
)
"""What may be different each time, and what it has to look like."""


def looks_like(shown: str) -> re.Pattern[str]:
    """Matches output as a page shows it; `…` is anything, and any number of lines where it stands alone."""
    kinds = "|".join(f"({shape})" for shape, _ in _LOOKS_LIKE)
    lines = []
    for line in shown.splitlines():
        if line.strip() == "…":
            lines.append(r"(?:.*\n)*?")
            continue
        parts, end = [], 0
        for found in re.finditer(kinds, line):
            parts += [re.escape(line[end : found.start()]), _LOOKS_LIKE[(found.lastindex or 1) - 1][1]]
            end = found.end()
        lines.append("".join(parts) + re.escape(line[end:]) + " *\n")
    return re.compile("".join(lines))


class Ports:
    """The ports that documents speak of, and the free ones that take their place."""

    _DISTANCES: Final = {9876: 0, 10909: 98, 10911: 100, 10919: 108, 10921: 110, 5557: 200}

    def __init__(self) -> None:
        self._base = next(base for base in iter(self._any_base, 0) if self._is_free(base))

    @staticmethod
    def _any_base() -> int:
        return random.randrange(12_000, 32_000)  # below those that the system hands out by itself

    def _is_free(self, base: int) -> bool:
        for distance in self._DISTANCES.values():
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", base + distance)) == 0:
                    return False
        return True

    def __getitem__(self, port: int) -> int:
        return self._base + self._DISTANCES[port]

    def in_place_of_those(self, text: str) -> str:
        return re.sub(
            rf"(?<!\d)({'|'.join(map(str, self._DISTANCES))})(?!\d)",
            lambda found: str(self[int(found[0])]),
            text,
        )


class _Running:
    """A command on its terminal."""

    def __init__(self, step: Step, script: str, folder: Path, variables: dict[str, str]) -> None:
        self.step = step
        self._printed = b""
        self._screen, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=side,
            stderr=side,
            start_new_session=True,
        )
        os.close(side)
        self._deadline = time.monotonic() + PATIENCE_S

    @property
    def shown(self) -> str:
        """What stands on the terminal: lines that were written over are gone."""
        text = _ESCAPES.sub("", self._printed.decode(errors="replace")).replace("\r\n", "\n")
        return re.sub(r"[^\n]*\r", "", text)

    def read(self) -> bool:
        """Take what was printed; False at the end of everything."""
        ready, _, _ = select.select([self._screen], [], [], max(0.0, self._deadline - time.monotonic()))
        if not ready:
            pytest.fail(f"not within {PATIENCE_S:g} s: {self.step.command}\n{self.shown}")
        try:
            data = os.read(self._screen, 65536)
        except OSError as error:
            if error.errno != errno.EIO:  # Linux says so when nobody has the other side any more
                raise
            data = b""
        self._printed += data
        return bool(data)

    def read_until_shown(self) -> None:
        """Until it has printed what the page shows; what comes behind that is not waited for."""
        wanted = looks_like(self.step.shown or "")
        while not wanted.match(self.shown):
            assert self.read(), f"{self.step.command} ended with\n{self.shown}"

    def interrupt(self) -> int:
        """Ctrl-C, and how it ended."""
        self._deadline = time.monotonic() + PATIENCE_S
        os.killpg(self.process.pid, signal.SIGINT)
        return self.finish()

    def finish(self) -> int:
        while self.read():
            pass
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._screen)


class Terminal:
    """Where the commands of one page are typed, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._ports = Ports()
        self._folder = folder
        self._state = folder / ".state"
        self._state.write_text("")
        bin_folder = Path(sys.executable).parent
        (folder / ".venv/bin").mkdir(parents=True)
        (folder / ".venv/bin/activate").write_text(f'export PATH="{bin_folder}:$PATH"\n')
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("COMETMQ_", "NAMESRV"))
        }
        self._variables = {
            **kept,
            "HOME": str(folder),
            "STATE": str(self._state),
            "TERM": "xterm",
            "NO_COLOR": "1",
        }
        self._left_running: list[_Running] = []

    def here(self, text: str) -> str:
        """A text of a page with the ports and folders of this test."""
        text = self._ports.in_place_of_those(re.sub(r"10\.0\.0\.\d+", "127.0.0.1", text))
        text = re.sub(r"(?<![\w.])/(?:data|var/lib)/", f"{self._folder}/data/", text)
        return re.sub(
            r"^(\$ )?cometmq standalone\b",
            rf"\g<0> --namesrv-port {self._ports[9876]} --port {self._ports[10911]}",
            text,
        )

    def save(self, name: str, text: str) -> None:
        """A file that the page says to write."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.here(text), encoding="utf-8")

    def run(self, step: Step, *, runs_on: bool = False) -> None:
        """Run a command as far as the page does, and compare what it prints."""
        shown = None if step.shown is None else self.here(step.shown)
        step = step._replace(command=self.here(step.command), shown=shown)
        script = _SHELL.format(command=step.command)
        running = _Running(step, script, self._folder, self._variables)
        if runs_on:
            self._left_running.append(running)
            running.read_until_shown()
            return
        try:
            if step.interrupted:
                running.read_until_shown()
                assert running.interrupt() in _INTERRUPTED, f"{step.command}\n{running.shown}"
                return
            assert running.finish() == 0, f"{step.command}\n{running.shown}"
            if step.shown is not None:
                assert looks_like(step.shown).fullmatch(running.shown), (
                    f"{step.command} is said to print\n{step.shown}\nand prints\n{running.shown}"
                )
        finally:
            running.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                for running in reversed(self._left_running):
                    code = running.interrupt()
                    assert code in _INTERRUPTED, f"{running.step.command} ended with {code}\n{running.shown}"
        finally:
            for running in self._left_running:
                running.close()
            shutil.rmtree(self._folder)
