"""One real Spark for all tests of this folder: it takes seconds to start."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cometmq import Producer
from cometmq.testing.embedded import EmbeddedBroker
from tests.spark.live_kit import Live

PATIENCE_S = 600
"""What the first test of a session waits for, too, is a Java that starts on a busy machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder more time: one that is stopped in a call to Java ruins the rest."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(PATIENCE_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two threads of this machine, which leaves nothing behind in the working directory."""
    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = _quiet_session(folder)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def _quiet_session(folder: Path) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("cometmq-tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@pytest.fixture(scope="session")
def live(spark: SparkSession) -> Iterator[Live]:
    """Spark, and a broker in this process."""
    with (
        EmbeddedBroker(settings={"enablePropertyFilter": "true"}) as rocketmq,
        Producer("spark-tests", namesrv=rocketmq.namesrv) as producer,
    ):
        yield Live(spark, rocketmq, producer)
