"""What an endpoint counts, code by code. Plain integers on the hot path; readers take a snapshot.

Codes that nobody serves are counted together, so that a peer cannot grow the table by inventing codes. These
are dataclasses because counting in one costs a fraction of counting in a struct.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

UNKNOWN_CODE = -1


@dataclass(slots=True)
class CodeMetrics:
    """Requests of one code."""

    requests: int = 0
    oneways: int = 0
    seconds: float = 0.0
    """Time from the start of the handler to its answer, summed."""
    longest_seconds: float = 0.0
    failures: dict[int, int] = field(default_factory=dict)
    """How often each response code other than success was answered."""

    def count_failure(self, code: int) -> None:
        self.failures[code] = self.failures.get(code, 0) + 1


@dataclass(slots=True)
class RemotingMetrics:
    """Counters of one endpoint."""

    codes: dict[int, CodeMetrics] = field(default_factory=dict)
    connections: int = 0
    accepted: int = 0
    refused: int = 0
    closed: dict[str, int] = field(default_factory=dict)
    """Closed connections by reason."""
    bytes_in: int = 0
    bytes_out: int = 0
    unreadable: int = 0
    """Frames whose header could not be read."""
    unmatched: int = 0
    """Answers that nobody waited for, mostly because their call had timed out."""
    running: int = 0
    """Handlers that have not answered yet."""

    def of(self, code: int) -> CodeMetrics:
        """The counters of a code that is served."""
        metrics = self.codes.get(code)
        if metrics is None:
            metrics = self.codes[code] = CodeMetrics()
        return metrics

    def count_closed(self, reason: str) -> None:
        self.closed[reason] = self.closed.get(reason, 0) + 1

    def snapshot(self) -> RemotingMetrics:
        """A copy that no longer changes."""
        return msgspec.convert(msgspec.to_builtins(self), RemotingMetrics, strict=False)
