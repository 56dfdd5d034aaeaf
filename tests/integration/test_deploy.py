"""The files in `deploy/`: read, and compared with what the programs understand and export."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from cometmq.cli.main import app
from cometmq.namesrv.config import NamesrvConfig, NamesrvSettings
from cometmq.namesrv.service import Namesrv
from tests.integration.broker_kit import running_broker
from tests.integration.status_kit import PROMETHEUS, ask

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
UNITS: Final = sorted((DEPLOY / "systemd").glob("*.service"))
SUFFIX: Final = re.compile("_(bucket|count|sum|total)$")


# YAML, as much of it as these files use: blocks of names, lists with dashes, values that are JSON or text.


def read_yaml(path: Path) -> Any:
    lines = [
        line for line in path.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    value, rest = _block(lines, 0)
    assert not rest, rest
    return value


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _block(lines: list[str], indent: int) -> tuple[Any, list[str]]:
    if lines[0].lstrip().startswith("- "):
        items = []
        while lines and _indent(lines[0]) == indent and lines[0].lstrip().startswith("- "):
            item, lines = _block([" " * (indent + 2) + lines[0].lstrip()[2:], *lines[1:]], indent + 2)
            items.append(item)
        return items, lines
    names: dict[str, Any] = {}
    while lines and _indent(lines[0]) == indent:
        name, colon, text = lines[0].strip().partition(":")
        assert colon, lines[0]
        assert name not in names, name
        lines = lines[1:]
        if text.strip():
            names[name] = _scalar(text.strip())
        else:
            assert _indent(lines[0]) > indent, f"{name} has no value"
            names[name], lines = _block(lines, _indent(lines[0]))
    return names, lines


def _scalar(text: str) -> Any:
    return json.loads(text) if text[0] in '[{"' else text


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
        assert read_yaml(path)["apiVersion"] == "1"


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
