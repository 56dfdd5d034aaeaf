"""Asking a server over HTTP how it is."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Final

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

PROMETHEUS: Final = {
    "metricsExporterType": "PROM",
    "metricsPromExporterPort": "0",
    "metricsPromExporterHost": "127.0.0.1",
}
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0"

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def ask(port: int, path: str, accept: str = "") -> tuple[int, str]:
    """Status and text of a page."""
    return await asyncio.to_thread(_ask, port, path, accept)


def _ask(port: int, path: str, accept: str) -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def scrape(port: int) -> Samples:
    """All samples, as Prometheus' own parser reads them, in both of its formats."""
    (status, text), (other_status, other) = (
        await ask(port, "/metrics"),
        await ask(port, "/metrics", OPENMETRICS),
    )
    assert (status, other_status) == (200, 200), (text, other)
    names = {family.name for family in parse_openmetrics(other)}  # type: ignore[no-untyped-call]
    families = list(text_string_to_metric_families(text))
    assert {family.name for family in families} == names
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(samples: Samples, name: str, labels: Mapping[str, str] = {}) -> float:
    """The sample that has these labels, whatever others it has."""
    wanted = labels.items()
    found = [
        amount for (each, others), amount in samples.items() if each == name and others >= frozenset(wanted)
    ]
    assert len(found) == 1, (name, labels, found)
    return found[0]
