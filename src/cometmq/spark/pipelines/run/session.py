"""The Spark session of a pipeline, and its requirements.

Rules kept here:
- A missing or too old PySpark or Java is reported in one sentence before anything starts.
- An existing session, of a notebook or a test, is used and kept. A new one is stopped at the end and leaves
  nothing on disk.
- The standard error of Java goes to a file, which is shown only if Spark does not start.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.model.errors import SettingsError, StateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_JAVA: Final = 17
LEAST_PYSPARK: Final = (4, 2)
HERE: Final = "local[*]"
"""All cores of this machine."""
_INSTALL: Final = "install it with: pip install 'cometmq[spark]'"
_JAVA_S: Final = 60.0
_LINES: Final = 5
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set by `spark-submit`, which has started Java."""


class Place(msgspec.Struct, frozen=True):
    """Where a pipeline runs."""

    name: str
    master: str | None = None
    """None is this machine, or the master of `spark-submit`."""
    settings: Mapping[str, str] = {}
    verbose: bool = False
    """Show the output of Java."""


def check_needs(environment: Mapping[str, str] | None = None) -> None:
    """Check that this machine can run Spark."""
    for module, package in (("pyspark", "PySpark"), ("pyarrow", "PyArrow")):
        if importlib.util.find_spec(module) is None:
            raise SettingsError(f"pipelines need {package}, which is not installed; {_INSTALL}")
    try:
        found = version("pyspark")
    except PackageNotFoundError:  # unpacked by hand
        found = "4.2"
    if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < LEAST_PYSPARK:
        raise SettingsError(f"pipelines need PySpark 4.2 or newer, this is {found}; {_INSTALL}")
    _check_java(os.environ if environment is None else environment)


def _check_java(environment: Mapping[str, str]) -> None:
    home = environment.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin")) if home else environment.get("PATH", ""))
    if java is None:
        where = f"JAVA_HOME is {home}, and there is none" if home else "none was found"
        raise SettingsError(
            f"Spark needs Java {LEAST_JAVA} or newer, and {where}; install one and set JAVA_HOME to it"
        )
    ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_S, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    if found is not None and int(found[1]) < LEAST_JAVA:
        raise SettingsError(
            f"Spark needs Java {LEAST_JAVA} or newer, and {java} is Java {found[1]}; "
            "install a newer one and set JAVA_HOME to it"
        )


@contextmanager
def spark_session(place: Place) -> Iterator[SparkSession]:
    """A session for one pipeline."""
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    with tempfile.TemporaryDirectory(prefix="cometmq-spark-") as home:
        session = _started(place, Path(home))
        session.sparkContext.setLogLevel("ERROR")
        # PySpark logs errors that pipelines report in one sentence.
        PySparkLogger.getLogger("SQLQueryContextLogger").setLevel("CRITICAL")
        try:
            yield session
        finally:
            session.stop()


def _started(place: Place, home: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(place.name)
    master = place.master or (None if _SUBMITTED in os.environ else HERE)
    if master is not None:
        builder = builder.master(master)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name, value in {**_settings(master, home), **place.settings}.items():
        builder = builder.config(name, value)
    log = home / "java.log"
    try:
        with _errors_to(None if place.verbose or _SUBMITTED in os.environ else log):
            return builder.getOrCreate()
    except Exception as error:  # the output of Java has the reason
        said = log.read_text(errors="replace").strip().splitlines()[-_LINES:] if log.exists() else []
        raise StateError(f"Spark did not start: {' '.join(said) or error}") from None


def _settings(master: str | None, home: Path) -> dict[str, str]:
    """Default settings of Spark."""
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.maxConcurrentOutputFileWriters": "64",  # no sort before writing partitions
        "spark.ui.showConsoleProgress": "false",
    }
    if master is not None and master.startswith("local"):
        settings |= {
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(max(os.cpu_count() or 1, 2)),
            "spark.local.dir": str(home / "local"),
            "spark.sql.warehouse.dir": str(home / "warehouse"),
        }
    return settings


@contextmanager
def _errors_to(log: Path | None) -> Iterator[None]:
    """Redirect the standard error of processes started meanwhile."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
