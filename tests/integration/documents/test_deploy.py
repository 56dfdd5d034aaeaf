"""The files in `deploy/`: read, and compared with what the programs understand and export."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import promql_parser
import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from cometmq.cli.main import app
from cometmq.namesrv.config import NamesrvConfig, NamesrvSettings
from cometmq.namesrv.service import Namesrv
from tests.integration.broker.broker_kit import running_broker
from tests.integration.remoting.status_kit import PROMETHEUS, ask

DEPLOY: Final = Path(__file__).parents[3] / "deploy"
UNITS: Final = sorted((DEPLOY / "systemd").glob("*.service"))
SUFFIX: Final = re.compile("_(bucket|count|sum|total)$")


def read_yaml(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path)


def lint(*command: str) -> None:
    """Run a linter; fails with what it found."""
    result = subprocess.run(
        [sys.executable, "-m", *command] if command[0] == "check_jsonschema" else [*command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


# What is exported


def names_in(expression: str) -> set[str]:
    """The metrics that a query names."""
    return set(re.findall(r"\b(?:rocketmq|cometmq)_[a-z_]+", expression))


def exported(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            yield from (
                [f"{name}_{part}" for part in ("bucket", "count", "sum")] if kind == "histogram" else [name]
            )


def queries() -> list[str]:
    dashboard = json.loads((DEPLOY / "grafana" / "cometmq.json").read_text())
    of_panels = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    of_variables = [
        each["query"]["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"
    ]
    return of_panels + of_variables


async def test_the_dashboard_names_only_metrics_that_there_are(tmp_path: Path) -> None:
    """B13."""
    config = NamesrvConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        kv_config_path=str(tmp_path / "kvConfig.json"),
        config_store_path=str(tmp_path / "namesrv.properties"),
    )
    namesrv = Namesrv(config, NamesrvSettings(metrics_port=0))
    await namesrv.start()
    try:
        assert namesrv.exporter is not None
        known = set(exported((await ask(namesrv.exporter.port, "/metrics"))[1]))
    finally:
        await namesrv.stop()
    async with running_broker(settings=PROMETHEUS) as kit:
        assert kit.broker.exporter is not None
        known |= set(exported((await ask(kit.broker.exporter.port, "/metrics"))[1]))
    for query in queries():
        assert names_in(query), query
        assert names_in(query) <= known, query


def test_the_panels_of_the_dashboard_have_places_and_numbers_of_their_own() -> None:
    panels = json.loads((DEPLOY / "grafana" / "cometmq.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_the_queries_of_the_dashboard_can_be_read() -> None:
    """B13: by a parser of Prometheus' language, with values for Grafana's variables."""
    for query in queries():
        if not query.startswith("label_values("):
            filled = re.sub(r"\$__\w+", "1m", re.sub(r"\$(?!__)\w+", "x", query))
            assert promql_parser.parse(filled) is not None, query


# Machines


def unit(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(path.read_text())
    return parser


def understood(*arguments: str) -> dict[str, Any]:
    """The settings that a command line leads to; fails if the command does not understand it."""
    result = CliRunner().invoke(app, [*arguments, "-p", "--json"])
    assert result.exit_code == 0, result.output
    settings: dict[str, Any] = json.loads(result.stdout)
    return settings


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_starts_a_command_that_understands_its_file(path: Path) -> None:
    service = unit(path)["Service"]
    program, command, *arguments = service["ExecStart"].split()
    assert Path(program).name == "cometmq"
    config = DEPLOY / "systemd" / Path(arguments[arguments.index("-c") + 1]).name
    arguments[arguments.index("-c") + 1] = str(config)
    shown = understood(command, *arguments)
    for line in config.read_text().splitlines():
        if line and not line.startswith("#"):
            key, _, value = line.partition("=")
            assert str(shown[key]["value"]) == value
    assert service["User"] == "cometmq"
    assert service["Restart"] == "on-failure"
    assert unit(path)["Install"]["WantedBy"] == "multi-user.target"


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_takes_a_unit(path: Path, tmp_path: Path) -> None:
    """Where there is no systemd, the test above has to do."""
    verify = shutil.which("systemd-analyze")
    if verify is None:
        return
    program = tmp_path / "cometmq"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copy = tmp_path / path.name
    copy.write_text(path.read_text().replace("/opt/cometmq/bin/cometmq", str(program)))
    result = subprocess.run(
        [verify, "verify", "--man=no", "--recursive-errors=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert path.name not in result.stderr, result.stderr


# Containers


def test_the_commands_of_the_compose_file_are_understood() -> None:
    services = read_yaml(DEPLOY / "compose.yaml")["services"]
    shown = {name: understood(*services[name]["command"]) for name in ("namesrv", "broker")}
    ports = {
        "namesrv": shown["namesrv"]["metricsPort"]["value"],
        "broker": shown["broker"]["metricsPromExporterPort"]["value"],
    }
    assert shown["broker"]["metricsExporterType"]["value"] == "PROM"
    for name, port in ports.items():
        assert f":{port}/ready" in services[name]["healthcheck"]["test"][-1]
        published = {each.split(":")[-1] for each in services[name]["ports"]}
        assert str(shown[name]["listenPort"]["value"]) in published
    targets = {
        target
        for job in read_yaml(DEPLOY / "prometheus" / "prometheus.yml")["scrape_configs"]
        for each in job["static_configs"]
        for target in each["targets"]
    }
    assert targets == {f"{name}:{port}" for name, port in ports.items()}


def test_the_compose_file_hangs_together() -> None:
    compose = read_yaml(DEPLOY / "compose.yaml")
    services = compose["services"]
    for name, service in services.items():
        assert "image" in service, name
        assert set(service.get("depends_on", {})) <= services.keys()
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (DEPLOY / source).exists(), volume
    build = services["namesrv"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()
    for path in (DEPLOY / "grafana" / "provisioning").rglob("*.yaml"):
        assert read_yaml(path)["apiVersion"] == 1


def test_the_compose_file_is_one_by_the_specification() -> None:
    lint("check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(DEPLOY / "compose.yaml"))


def test_hadolint_finds_nothing_in_the_image() -> None:
    lint(str(Path(sys.executable).with_name("hadolint")), str(DEPLOY / "Containerfile"))


def test_the_image_has_what_it_copies_and_starts_a_command_that_there_is() -> None:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    for line in lines:
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (DEPLOY.parent / source).exists(), source
    command = json.loads(next(line for line in lines if line.startswith("CMD ")).removeprefix("CMD "))
    result = CliRunner().invoke(app, [command[0], "--help"])
    assert result.exit_code == 0
    for option in (each for each in command if each.startswith("--")):
        assert option in result.output
