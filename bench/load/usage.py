"""Processor time and memory of a process, from /proc.

Rules kept here:

- They are read at the begin and at the end of the measured time: connecting and disconnecting are part of no
  figure.
- Resident memory includes pages of mapped files, which the system takes back when it needs them; private
  memory does not.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchmarkError

_TICKS = os.sysconf("SC_CLK_TCK")
_USER_TIME, _SYSTEM_TIME = 11, 12
"""Fields of `/proc/PID/stat`, counted after the name, which may have spaces."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time since the start of the process, and memory now."""

    cpu_seconds: float
    resident_mb: float
    private_mb: float


def usage_of(pid: int) -> Usage:
    """The usage of a process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError as problem:
        raise BenchmarkError(f"process {pid} cannot be looked at: {problem.strerror}") from problem
    sizes = dict(line.split(":", 1) for line in status.splitlines())
    return Usage(
        cpu_seconds=(int(fields[_USER_TIME]) + int(fields[_SYSTEM_TIME])) / _TICKS,
        resident_mb=_megabytes(sizes["VmRSS"]),
        private_mb=_megabytes(sizes["RssAnon"]),
    )


def cpu_ns_of(pid: int) -> int:
    """Processor time of a process, exact enough for a window of milliseconds."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)
    except OSError as problem:
        raise BenchmarkError(f"process {pid} cannot be looked at: {problem.strerror}") from problem


def _megabytes(text: str) -> float:
    return int(text.split()[0]) * 1024 / 1e6
