"""A Spark to run pipelines on: what it needs of a machine, and how it is set up.

Rules kept here:
- What is missing is said in one sentence before anything starts: PySpark, Java, or a newer one of either.
- A session that is there already, of a notebook or a test, is used and left alone. One that is made here is
  stopped at the end and leaves nothing behind.
- What Java writes to standard error goes to a file, and comes to light only if Spark does not start.
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
"""The master that is this machine, with all its cores."""
_INSTALL: Final = "install it with: pip install 'cometmq[spark]'"
_JAVA_S: Final = 60.0
_LINES: Final = 5
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""The variable by which `spark-submit` tells a program that Java runs already."""


class Place(msgspec.Struct, frozen=True):
    """Where a pipeline runs."""

    name: str
    master: str | None = None
    """None is this machine, or what `spark-submit` was told."""
    settings: Mapping[str, str] = {}
    verbose: bool = False
    """Whether what Java says is shown."""


def check_needs(environment: Mapping[str, str] | None = None) -> None:
    """Refuse a machine that cannot run Spark."""
    for module, package in (("pyspark", "PySpark"), ("pyarrow", "PyArrow")):
        if importlib.util.find_spec(module) is None:
            raise SettingsError(f"pipelines need {package}, which is not installed; {_INSTALL}")
    try:
        found = version("pyspark")
    except PackageNotFoundError:  # a Spark that was unpacked by hand
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
    """A session, until the pipeline is done."""
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    with tempfile.TemporaryDirectory(prefix="cometmq-spark-") as home:
        session = _started(place, Path(home))
        session.sparkContext.setLogLevel("ERROR")
        # Spark's Python writes down errors that are caught and told in one sentence by pipelines.
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
    except Exception as error:  # whatever it is, what Java said is the reason
        said = log.read_text(errors="replace").strip().splitlines()[-_LINES:] if log.exists() else []
        raise StateError(f"Spark did not start: {' '.join(said) or error}") from None


def _settings(master: str | None, home: Path) -> dict[str, str]:
    """What pipelines want of Spark, unless somebody says otherwise."""
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.maxConcurrentOutputFileWriters": "64",  # partitions of files are written without a sort
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
    """Processes that are started meanwhile write their errors to a file."""
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
