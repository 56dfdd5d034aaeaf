"""Releases of Spark: what is too old says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("module", ["pyspark_cometmq", "pyspark_cometmq_log"])
def test_a_spark_without_python_data_sources_is_refused_with_a_sentence(tmp_path: Path, module: str) -> None:
    (tmp_path / "pyspark" / "sql").mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").write_text('__version__ = "3.5.1"\n')
    (tmp_path / "pyspark" / "sql" / "__init__.py").write_text("")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {module}"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "this is PySpark 3.5.1, which has no Python data sources; CometMQ needs PySpark 4.0" in run.stderr
