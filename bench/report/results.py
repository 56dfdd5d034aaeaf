"""Results of earlier runs: a file for every benchmark, its newest run, from which page and plot are made.

Rules kept here:

- A run replaces the files of the benchmarks that it ran, and no others.
- A file says when and where it was measured, and against which versions, because the files of a folder may be
  of different runs.
- Nothing that names a machine is written: no host, no path.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from bench.errors import BenchmarkError
from bench.report.figures import Section
from tests.compat.jvm import PEERS

RESULTS = Path(__file__).resolve().parents[1] / "results"
_JARS = {
    "Apache RocketMQ": ("apache/lib", r"rocketmq-broker-(\d[\d.]*)\.jar"),
    "Kafka": ("kafka/lib", r"kafka_[\d.]+-(\d[\d.]*)\.jar"),
}
_PACKAGES = {"CometMQ": "cometmq", "PySpark": "pyspark"}


@dataclass(frozen=True, slots=True)
class Machine:
    """What it was measured on."""

    processor: str
    cores: int
    memory_gb: int
    system: str
    load_average: float
    """Of the last minute before the run."""


@dataclass(frozen=True, slots=True)
class Result:
    """A section with where it comes from."""

    name: str
    """That of the benchmark, as `--only` takes it."""
    at: str
    quick: bool
    machine: Machine
    versions: dict[str, str]
    section: Section
    seconds: float = 0.0
    """How long the benchmark took."""


def keep(result: Result, folder: Path = RESULTS) -> Path:
    """Write a result in the place of the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{result.name}.json"
    file.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    return file


def newest(names: Iterable[str], folder: Path = RESULTS) -> Iterator[Result]:
    """The results that are kept of these benchmarks."""
    for name in names:
        file = folder / f"{name}.json"
        if not file.exists():
            continue
        try:
            yield msgspec.json.decode(file.read_bytes(), type=Result)
        except msgspec.MsgspecError as problem:
            raise BenchmarkError(
                f"{file.name} is no result ({problem}): run `--only {name}` again"
            ) from problem


def this_machine() -> Machine:
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        system=f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        load_average=round(os.getloadavg()[0], 2),
    )


def now() -> str:
    return time.strftime("%Y-%m-%d %H:%M %Z")


def _processor() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def versions() -> dict[str, str]:
    """Of ours and of the peers, as far as they are there."""
    found = {"Python": platform.python_version()}
    for name, package in _PACKAGES.items():
        try:
            found[name] = version(package)
        except PackageNotFoundError:
            continue
    for name, (folder, pattern) in _JARS.items():
        for jar in (PEERS / folder).glob("*.jar"):
            if match := re.fullmatch(pattern, jar.name):
                found[name] = match[1]
    if java := _java():
        found["Java"] = java
    return dict(sorted(found.items()))


def _java() -> str:
    try:
        told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    except FileNotFoundError:
        return ""
    found = re.search(r'version "([^"]+)"', told)
    return found[1] if found else ""
