"""What a load looks like, and what a run of it showed; all load generators speak of both in these words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.latency import LatencyHistogram
from bench.usage import Usage


@dataclass(frozen=True, slots=True)
class Shape:
    """Over how many connections is asked, and how many requests are in flight."""

    connections: int
    in_flight: int
    """On each connection; of all together when they take turns."""
    in_turn: bool = False
    idle: int = 0
    """Connections that are open beside the others."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a run showed. Latencies are per request, from `send` to the answer's arrival."""

    connections: int
    in_flight: int
    requests: int
    seconds: float
    rate: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    errors: int
    error_codes: dict[str, int] = field(default_factory=dict)
    first_error: str = ""
    bytes_in: int = 0
    bytes_out: int = 0
    cpu_seconds: float = 0.0
    server_cpu_seconds: float = 0.0
    server_resident_mb: float = 0.0
    server_private_mb: float = 0.0

    @property
    def cpu_share(self) -> float:
        """The part of one core that the generator itself used."""
        return self.cpu_seconds / self.seconds if self.seconds else 0.0

    @property
    def server_cpu_share(self) -> float:
        """The cores that the server used, as far as somebody looked."""
        return self.server_cpu_seconds / self.seconds if self.seconds else 0.0

    @property
    def server_cpu_us(self) -> float:
        """What a request cost the server, in microseconds of processor time."""
        return self.server_cpu_seconds / self.requests * 1e6 if self.requests else 0.0


@dataclass(slots=True)
class Window:
    """What a generator noted between the two ends of the measured time."""

    requests: int
    seconds: float
    latency: LatencyHistogram
    cpu_seconds: float
    server_before: Usage | None
    server_after: Usage | None
    """What was seen of the server at both ends, when somebody looked."""
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
        p50_ms=window.latency.percentile_us(0.50) / 1000,
        p99_ms=window.latency.percentile_us(0.99) / 1000,
        p999_ms=window.latency.percentile_us(0.999) / 1000,
        max_ms=window.latency.percentile_us(1.0) / 1000,
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
