"""`cometmq pipeline` before Spark starts: definitions, flags, and what is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cometmq.cli.common.connect import Link
from cometmq.cli.common.contexts import read_contexts
from cometmq.cli.common.output import UsageError
from cometmq.cli.pipeline.options import Run
from cometmq.model.errors import SettingsError
from cometmq.spark.pipelines.archive.job import ArchiveJob
from cometmq.spark.pipelines.replay import ReplayJob
from cometmq.spark.pipelines.run import session
from cometmq.spark.pipelines.run.jobs import flags_of, job_of, read_definition, spark_table
from cometmq.spark.pipelines.run.session import check_needs
from cometmq.spark.pipelines.run.streams import reason_of
from cometmq.spark.pipelines.sql import SqlJob

DEFINITION = """
namesrvAddr = "a:9876"
topics = ["orders", "refunds"]
output = "/data/archive"
from = 2026-01-31T12:00:00Z

[source]
maxBytesPerTrigger = 1000
failOnDataLoss = false

[spark]
master = "local[3]"
"spark.executor.memory" = "1g"
"""


@pytest.fixture
def definition(tmp_path: Path) -> Path:
    path = tmp_path / "archive.toml"
    path.write_text(DEFINITION, encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "COMETMQ_NAMESRV",
        "NAMESRV_ADDR",
        "COMETMQ_ACCESS_KEY",
        "COMETMQ_SECRET_KEY",
        "COMETMQ_TLS",
    ):
        monkeypatch.delenv(name, raising=False)


def test_a_definition_file_has_the_options_and_flags_win(definition: Path) -> None:
    run = Run("archive", definition, options=["minPartitions=4", "maxBytesPerTrigger=7"])
    job = run.job(ArchiveJob, output="/elsewhere", follow=None, topics=[])
    assert job.namesrv_addr == "a:9876"
    assert job.topics == ("orders", "refunds")
    assert job.output == "/elsewhere"
    assert job.start == "1769860800000"
    assert job.source == {"maxBytesPerTrigger": "7", "failOnDataLoss": "false", "minPartitions": "4"}
    options = job.source_options(**job.topic_options())
    assert options["topics"] == "orders,refunds"
    assert options["startingTimestamp"] == "1769860800000"
    assert "startingOffsets" not in options
    assert spark_table(read_definition(definition)) == {"master": "local[3]", "spark.executor.memory": "1g"}


def test_name_servers_and_keys_come_from_the_environment_if_nothing_else_names_them(
    definition: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMETMQ_NAMESRV", "b:9876")
    monkeypatch.setenv("COMETMQ_ACCESS_KEY", "me")
    monkeypatch.setenv("COMETMQ_SECRET_KEY", "secret")
    monkeypatch.setenv("COMETMQ_TLS", "true")
    job = Run("sql").job(SqlJob, query="SELECT 1")
    assert job.namesrv_addr == "b:9876"
    assert job.source == job.sink == {"accessKey": "me", "secretKey": "secret", "tls.enable": "true"}
    assert Run("archive", definition).job(ArchiveJob).namesrv_addr == "a:9876"
    assert Run("archive", definition, "c:9876").job(ArchiveJob).namesrv_addr == "c:9876"


def test_a_certificate_of_ones_own_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COMETMQ_TLS_CERT", "COMETMQ_TLS_KEY", "COMETMQ_TLS_KEY_PASSWORD"):
        monkeypatch.setenv(name, name.lower())
    monkeypatch.setenv("COMETMQ_TLS", "true")
    assert Run("sql", namesrv="a:1").job(SqlJob, query="SELECT 1").source == {
        "tls.enable": "true",
        "tls.client.certPath": "cometmq_tls_cert",
        "tls.client.keyPath": "cometmq_tls_key",
        "tls.client.keyPassword": "cometmq_tls_key_password",
    }
    tls = Link("a:1").options()["tls"]
    assert tls is not None
    assert (tls.cert_path, tls.key_path) == ("cometmq_tls_cert", "cometmq_tls_key")
    assert tls.key_password == "cometmq_tls_key_password"


def test_a_time_that_is_counted_from_now_names_the_same_replay_later() -> None:
    flags = {"from": "10m", "topics": ["T"], "toTopic": "U", "checkpoint": "c"}
    job = Run("replay", namesrv="a:1").job(ReplayJob, **flags)
    assert job.written_range == "10m to None"
    assert job.start is not None
    assert job.start.isdecimal()


def test_a_duration_in_a_definition_has_a_unit_or_is_seconds(tmp_path: Path) -> None:
    for written, every_s in (('"2m30s"', 150.0), ("7", 7.0)):
        definition = tmp_path / "archive.toml"
        definition.write_text(f"everyS = {written}")
        job = Run("archive", definition, "a:1").job(ArchiveJob, output="x", topics=["T"])
        assert job.every_s == every_s


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"topics": ["T"]}, "output is missing; give it by its flag, or in the definition file"),
        ({"outptu": "x"}, "no option 'outptu'; did you mean output?"),
        ({"output": "x", "batchRows": "many"}, "batchRows: Expected `int`, got `str`"),
        ({"output": "x", "from": "yesterday"}, "'yesterday' is no time"),
    ],
)
def test_a_wrong_option_is_wrong_usage_in_one_sentence(flags: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        Run("archive", namesrv="a:1").job(ArchiveJob, **flags)
    assert sentence in str(caught.value)


def test_a_context_names_the_cluster_and_without_any_it_is_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A context that a flag names wins over the definition file: its keys go nowhere else."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("COMETMQ_NAMESRV", "NAMESRV_ADDR", "COMETMQ_CONTEXT"):
        monkeypatch.delenv(name, raising=False)

    def job(**options: Any) -> ArchiveJob:
        return Run("archive", **options).job(ArchiveJob, output="x", topics=["T"])

    assert job().namesrv_addr == "127.0.0.1:9876"
    contexts = read_contexts()
    contexts.by_name["prod"] = {"namesrv": "prod:9876", "accessKey": "ops", "secretKey": "s3cret"}
    contexts.write()
    definition = tmp_path / "archive.toml"
    definition.write_text('namesrvAddr = "file:9876"')
    found = job(context="prod", file=definition)
    assert (found.namesrv_addr, found.source["accessKey"]) == ("prod:9876", "ops")
    contexts.in_use = "prod"
    contexts.write()
    assert job().namesrv_addr == "prod:9876"
    found = job(file=definition)
    assert (found.namesrv_addr, found.source) == ("file:9876", {})


def test_a_file_that_is_no_definition_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.toml cannot be read: No such file"):
        read_definition(tmp_path / "none.toml")
    path = tmp_path / "bad.toml"
    path.write_text("topics: orders")
    with pytest.raises(SettingsError, match=r"bad\.toml is not TOML"):
        read_definition(path)
    with pytest.raises(SettingsError, match="source has to be a table"):
        job_of(ArchiveJob, {"source": "x"})


# What Spark needs.


def fake_java(folder: Path, version: str) -> dict[str, str]:
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return {"JAVA_HOME": str(folder), "PATH": ""}


def test_missing_java_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="Spark needs Java 17 or newer, and none was found; install one"):
        check_needs({"PATH": str(tmp_path)})
    with pytest.raises(SettingsError, match=f"JAVA_HOME is {tmp_path}, and there is none"):
        check_needs({"JAVA_HOME": str(tmp_path)})


@pytest.mark.parametrize(("version", "number"), [("1.8.0_392", "8"), ("11.0.2", "11")])
def test_a_java_that_is_too_old_is_one_sentence(tmp_path: Path, version: str, number: str) -> None:
    with pytest.raises(SettingsError, match=f"Spark needs Java 17 or newer, and .*java is Java {number}; "):
        check_needs(fake_java(tmp_path, version))


def test_a_java_that_is_new_enough_is_taken(tmp_path: Path) -> None:
    check_needs(fake_java(tmp_path, "17.0.1"))


def test_missing_pyspark_is_one_sentence_on_the_command_line() -> None:
    script = (
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'pyspark' else find(name, *rest)\n"
        "from cometmq.cli.main import main\n"
        "sys.argv = ['cometmq', 'pipeline', 'archive', '-n', 'a:1', '-t', 'T', '-o', 'x']\n"
        "main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    sentence = "pipelines need PySpark, which is not installed; install it with: pip install 'cometmq[spark]'"
    assert ended.stderr == f"error: {sentence}\n"
    assert ended.returncode == 1


def test_an_old_pyspark_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "version", lambda _: "3.5.1")
    with pytest.raises(SettingsError, match=r"need PySpark 4.2 or newer, this is 3\.5\.1"):
        check_needs()


def test_the_reason_of_a_failed_query_is_our_own_sentence() -> None:
    said = "[PYTHON_ERROR] Traceback:\n  x\ncometmq.model.errors.SettingsError: give it, too\n\nat java"
    reason = reason_of(RuntimeError(said))
    assert isinstance(reason, SettingsError)
    assert str(reason) == "give it, too"
    assert str(reason_of(RuntimeError("[FAILED] Job aborted.\nmore"))) == "[FAILED] Job aborted."


def test_the_flags_of_a_pipeline_are_the_fields_of_its_job() -> None:
    flags = {each.field: each for each in flags_of(ArchiveJob)}
    assert flags["topics"].names == ("--topic", "-t")
    assert flags["topics"].type == list[str]
    assert flags["batchRows"].type is int
    assert flags["batchRows"].least == 1
    assert flags["properties"].type is str
    assert flags["checkpoint"].type is str
    assert flags["follow"].type is bool
    assert set(ArchiveJob.__struct_encode_fields__) - flags.keys() == {"namesrvAddr", "source"}
    assert not next(flags_of(SqlJob)).names  # the query is an argument
