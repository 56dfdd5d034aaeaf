"""What works without the extra `server`, and what the rest says (B1)."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.integration.documents.documents import ROOT

PATIENCE_S = 60.0
HIDDEN = ("click", "cryptography", "prometheus_client", "rich", "typer")
HIDE = f"import sys; sys.modules.update(dict.fromkeys({HIDDEN!r}))\n"

USE = """
from cometmq import Message, Producer, PullConsumer
from cometmq.testing import EmbeddedBroker

with EmbeddedBroker() as rocketmq, Producer("shop", namesrv=rocketmq.namesrv) as producer:
    receipt = producer.send(Message("Orders", b"one bicycle"))
    with PullConsumer("billing", namesrv=rocketmq.namesrv) as consumer:
        consumer.assign([receipt.queue])
        consumer.seek_to_beginning(receipt.queue)
        print([message.body for message in consumer.poll(timeout_s=30)])
"""
METRICS = """
from cometmq.testing import EmbeddedBroker

with EmbeddedBroker(settings={"metricsExporterType": sys.argv[1]}):
    pass
"""
TLS = """
from cometmq import Admin, ClientTls
from cometmq.testing import EmbeddedBroker

with EmbeddedBroker() as rocketmq, Admin(namesrv=rocketmq.namesrv, tls=ClientTls()) as admin:
    admin.cluster_info()
"""
COMMAND = "from cometmq.cli import run; run()"


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HIDE + program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_clients_and_the_embedded_broker_need_no_extra() -> None:
    """B1."""
    ended = run(USE)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[b'one bicycle']\n", "")


@pytest.mark.parametrize("arguments", [["broker", "-c", "broker.conf"], ["topic", "list"], ["--version"], []])
def test_the_command_says_what_to_install(arguments: list[str]) -> None:
    """N9: in one line."""
    ended = run(COMMAND, *arguments)
    command = " ".join(["cometmq", *arguments[:1]])
    said = f"{command} needs typer, which is not installed: pip install 'cometmq[server]'\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", said)


@pytest.mark.parametrize("kind", ["PROM", "LOG"])
def test_metrics_say_what_to_install(kind: str) -> None:
    """B1: before the broker serves anybody."""
    ended = run(METRICS, kind)
    assert "SettingsError: metrics need prometheus-client" in ended.stderr
    assert ended.stderr.endswith("pip install 'cometmq[server]'\n")


def test_a_server_without_a_certificate_says_what_to_install() -> None:
    """N4: in its log, when the first TLS client comes."""
    ended = run(TLS)
    assert ended.returncode == 1
    assert "TLS without certificate files needs cryptography, which is not installed" in ended.stderr


def test_the_hidden_modules_are_those_of_the_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra = {each.partition(">")[0].replace("-", "_") for each in project["optional-dependencies"]["server"]}
    assert extra == set(HIDDEN) - {"click"}, "click comes with typer"
    assert project["scripts"] == {"cometmq": "cometmq.cli:run"}


@pytest.mark.parametrize("path", ["Makefile", "deploy/Containerfile", "deploy/README.md"])
def test_what_runs_servers_installs_the_extra(path: str) -> None:
    text = Path(ROOT / path).read_text(encoding="utf-8")
    installs = [line for line in text.splitlines() if "pip install" in line and "cometmq" in line.lower()]
    installs = installs or [line for line in text.splitlines() if "'.[dev" in line]
    assert installs
    assert all("server" in line for line in installs), installs
