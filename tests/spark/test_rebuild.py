"""Queues and index made again by real Spark workers."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from cometmq.spark.rebuild.rebuild import rebuild
from tests.unit.spark.stores_kit import VECTOR_SIZES, files_below, index_contents
from tests.unit.store.log_kit import config
from tests.unit.store.store_vectors import unpack_clean_store


def test_queues_and_index_of_apache_come_back_byte_for_byte(spark: SparkSession, tmp_path: Path) -> None:
    """D2, D3: after both were removed."""
    whole = unpack_clean_store(tmp_path / "whole", "")
    root = unpack_clean_store(tmp_path / "log", "commitlog", "config", "checkpoint")
    rebuilt = rebuild(spark, root, config(root, **VECTOR_SIZES), range_bytes=20_000)

    assert (rebuilt.messages, rebuilt.indexed) == (153, 150)
    assert files_below(root / "consumequeue") == files_below(whole / "consumequeue")
    assert index_contents(root) == index_contents(whole)
