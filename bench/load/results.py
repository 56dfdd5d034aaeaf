"""`Shape` and `LoadResult`: the input and the output of every load generator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from bench.load.usage import Usage
from cometmq.cli.bench.figures import Latencies, Percentiles


@dataclass(frozen=True, slots=True)
class Shape:
    """The number of connections and of requests in flight."""

    connections: int
    in_flight: int
    """On each connection; of all together when they take turns."""
    in_turn: bool = False
    idle: int = 0
    """Further open connections without requests."""


class LoadResult(msgspec.Struct, frozen=True):
    """The figures of a run. Latencies are per request, from `send` to the answer's arrival."""

    connections: int
    in_flight: int
    requests: int
    seconds: float
    rate: float
    latency_ms: Percentiles
    errors: int
    error_codes: dict[str, int] = {}
    first_error: str = ""
    bytes_in: int = 0
    bytes_out: int = 0
    cpu_seconds: float = 0.0
    server_cpu_seconds: float = 0.0
    server_resident_mb: float = 0.0
    server_private_mb: float = 0.0

    @property
    def cpu_share(self) -> float:
        """The share of one core that the generator used."""
        return self.cpu_seconds / self.seconds if self.seconds else 0.0

    @property
    def server_cpu_share(self) -> float:
        """The cores that the server used; 0 if it was not watched."""
        return self.server_cpu_seconds / self.seconds if self.seconds else 0.0

    @property
    def server_cpu_us(self) -> float:
        """Processor time of the server for one request, in microseconds."""
        return self.server_cpu_seconds / self.requests * 1e6 if self.requests else 0.0


@dataclass(slots=True)
class Window:
    """The raw figures of the measured time."""

    requests: int
    seconds: float
    latency: Latencies
    cpu_seconds: float
    server_before: Usage | None
    server_after: Usage | None
    """Usage of the server at the begin and at the end, if it was watched."""
    bytes_in: int = 0
    bytes_out: int = 0


def load_result(
    shape: Shape, window: Window, error_codes: Mapping[int, int] = {}, first_error: str = ""
) -> LoadResult:
    """The result of a run; errors are counted to the very end, everything else in the measured time."""
    before, after = window.server_before, window.server_after
    return LoadResult(
        connections=shape.connections,
        in_flight=shape.in_flight,
        requests=window.requests,
        seconds=window.seconds,
        rate=window.requests / window.seconds,
        latency_ms=window.latency.percentiles(),
        errors=sum(error_codes.values()),
        error_codes={str(code): count for code, count in sorted(error_codes.items())},
        first_error=first_error,
        bytes_in=window.bytes_in,
        bytes_out=window.bytes_out,
        cpu_seconds=window.cpu_seconds,
        server_cpu_seconds=after.cpu_seconds - before.cpu_seconds if before and after else 0.0,
        server_resident_mb=after.resident_mb if after else 0.0,
        server_private_mb=after.private_mb if after else 0.0,
    )
