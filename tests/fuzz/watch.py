"""What has to hold while a server is fuzzed, and what was found that does not.

- `Findings` collects everything that is wrong, so that a run tells all of it and not just the first.
- `Pinger` asks on a connection of its own, all the time, and knows the longest it had to wait.
- `FolderWatch` sees whether anything outside the store was made, changed or deleted, and whether what was in
  the store is still there.
- `check_log` reads what a server logged, `check_answer` what it answered.
"""

from __future__ import annotations

import builtins
import os
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import Command, encode_command
from cometmq.wire.frame.framing import FrameSplitter

LONGEST_GAP_S: Final = 1.0
"""Within this time a request on another connection is answered, whatever is asked meanwhile."""
MAX_LINES_A_REQUEST: Final = 2
MAX_LINES_BESIDE: Final = 500
"""So many lines may come from starting, stopping and what goes on beside requests."""
MAX_LINE_BYTES: Final = 16_384
MAX_GROWTH_BYTES: Final = 200 * 1024 * 1024
MAX_DESCRIPTORS: Final = 2_000
_SHOWN: Final = 3

_OPENING: Final = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL) [\w.]+ "
)
_RAW_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\ud800-\udfff]")
_EXCEPTIONS: Final = [
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type)
    and issubclass(value, BaseException)
    and name != "Exception"  # a word of Apache's remarks
]
_INTERNAL: Final = re.compile(
    r"Traceback|its log says why|\b(" + "|".join(_EXCEPTIONS) + r"|MsgspecError|ValidationError"
    r"|DecodeError|CometError|HeaderError|MessageError|RecordError|struct\.error)\b|<class '|object at 0x"
)


def patience() -> float:
    """By how much longer things may take than on an idle machine: the load of a core."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class Findings:
    """What is wrong, by kind: how often, and the first of each."""

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()
        self._shown: dict[str, list[str]] = {}

    def add(self, kind: str, detail: object) -> None:
        self._count[kind] += 1
        shown = self._shown.setdefault(kind, [])
        if len(shown) < _SHOWN:
            shown.append(str(detail))

    def __bool__(self) -> bool:
        return bool(self._count)

    def __str__(self) -> str:
        parts = []
        for kind, count in self._count.most_common():
            parts.append(f"{count} x {kind}")
            parts += [f"    {detail}" for detail in self._shown[kind]]
        return "\n".join(parts)


def check_answer(findings: Findings, answer: Command, question: object) -> None:
    """An answer has a code and, unless it is a success, a sentence for people."""
    if answer.code != 0 and not answer.remark:
        findings.add(f"an answer with code {answer.code} and no sentence", question)
    leak = _INTERNAL.search(answer.remark or "")
    if leak is not None:
        findings.add(
            f"an answer that tells of {leak.group()!r}", f"{(answer.remark or '')[:300]!r} to {question}"
        )


def check_log(findings: Findings, log: Path, requests: int) -> int:
    """A log has whole lines, no traces, no raw control characters, and not too many of them; how many."""
    text = log.read_bytes().decode("utf-8", "surrogateescape")
    lines = text.split("\n")
    for number, line in enumerate(lines):
        control = _RAW_CONTROL.search(line)
        if control is not None:
            findings.add("a raw control character in the log", repr(line[:300]))
        if line.startswith("Traceback"):
            findings.add("a trace in the log", _trace(lines, number))
        elif not _is_expected(lines, number):
            findings.add("a line of the log that no event began", repr(line[:300]))
        if len(line) > MAX_LINE_BYTES:
            findings.add("a line of the log of more than 16 KiB", repr(line[:200]))
    allowed = MAX_LINES_BESIDE + MAX_LINES_A_REQUEST * requests
    if len(lines) > allowed:
        findings.add("too many lines in the log", f"{len(lines)} for {requests} requests")
    return len(lines)


def _is_expected(lines: list[str], number: int) -> bool:
    """Whether a line begins an event, or belongs to a trace."""
    line = lines[number]
    if not line or _OPENING.match(line) or line.startswith((" ", "warning: ")):
        return True
    return any(each.startswith("Traceback") for each in lines[max(0, number - 60) : number])


def _trace(lines: list[str], number: int) -> str:
    """The line that a trace belongs to, where it comes from, and what it ends with."""
    end = number + 1
    while end < len(lines) and end - number < 80 and not _OPENING.match(lines[end]):
        end += 1
    return "\n      ".join(
        [lines[number - 1][:500], *(line[:200] for line in lines[max(number, end - 7) : end])]
    )


class Pinger(threading.Thread):
    """Asks a server all the time, on a connection of its own."""

    def __init__(
        self, port: int, where: Callable[[], str], code: int = RequestCode.GET_BROKER_CLUSTER_INFO
    ) -> None:
        """`where` tells what is going on, for whoever has to find out why an answer took long."""
        super().__init__(daemon=True)
        self._where = where
        self._slow: list[str] = []
        self._address = ("127.0.0.1", port)
        self._code = code
        self._stopped = threading.Event()
        self.longest_s = 0.0
        self.count = 0
        self.failure = ""

    def run(self) -> None:
        try:
            with socket.create_connection(self._address, timeout=60) as connection:
                self._ask_on(connection)
        except OSError as error:
            self.failure = f"another connection got {error!r} after {self.count} answers"

    def _ask_on(self, connection: socket.socket) -> None:
        splitter = FrameSplitter()
        while not self._stopped.wait(0.01):
            began = time.monotonic()
            connection.sendall(encode_command(self._code, self.count + 1, 0))
            while splitter.next_frame() is None:
                data = connection.recv(65_536)
                if not data:
                    raise ConnectionError("the end of the connection")
                splitter.feed(data)
            waited_s = time.monotonic() - began
            self.longest_s = max(self.longest_s, waited_s)
            if waited_s > LONGEST_GAP_S * patience():
                self._slow.append(f"{waited_s:.2f} s of {LONGEST_GAP_S:g}: {self._where()}")
            self.count += 1

    def finish(self, findings: Findings) -> None:
        self._stopped.set()
        self.join(60)
        if self.failure:
            findings.add("a good connection that broke", self.failure)
        if self.is_alive():
            self._slow.append(f"more than 60 s: {self._where()}")
        for each in self._slow:
            findings.add("a good request that waited too long", each)


class FolderWatch:
    """Files that nobody may touch: all of a folder but for what the servers own."""

    def __init__(self, root: Path, owned: list[Path]) -> None:
        self._root = root
        self._owned = owned
        self._inside: list[Path] = []

    def begin(self, store: Path) -> None:
        """Put files beside the store and in it, and remember everything."""
        for folder in (self._root, store, store / "config", store / "consumequeue", store / "index"):
            folder.mkdir(parents=True, exist_ok=True)
        self._inside = [
            store / "config" / "canary.json",
            store / "canary.txt",
            self._root / "beside" / "canary.txt",
        ]
        self._inside.append(self._root / "servers" / "canary.txt")
        for path in self._inside:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("nobody may touch this")
        self._log_files = self._files_of_log(store)
        self._before = self._snapshot()

    def finish(self, findings: Findings, store: Path) -> None:
        for path in self._inside:
            if not path.exists() or path.read_text() != "nobody may touch this":
                findings.add("a file that was not the server's own and is gone or changed", path)
        gone = self._log_files - self._files_of_log(store)
        if gone:
            findings.add("a file of the commit log that is gone", gone)
        after = self._snapshot()
        for name in sorted(after.keys() ^ self._before.keys()):
            findings.add("a file outside the store that came or went", name)
        for name in sorted(after.keys() & self._before.keys()):
            if after[name] != self._before[name]:
                findings.add("a file outside the store that changed", name)

    @staticmethod
    def _files_of_log(store: Path) -> set[str]:
        return {path.name for path in (store / "commitlog").glob("*")}

    def _snapshot(self) -> dict[str, tuple[int, int]]:
        found = {}
        for path in self._root.rglob("*"):
            if any(path == owned or owned in path.parents for owned in self._owned):
                continue
            state = path.lstat()
            found[str(path)] = (state.st_mode, 0 if path.is_dir() else hash(path.read_bytes()))
        return found
