"""Tools for tests, of CometMQ and of programs that use it.

A whole broker in the process of a test, a clock that jumps, files and disks that fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cometmq.testing.clock import VirtualClock
from cometmq.testing.files import FailingFiles
from cometmq.testing.simulation.disk import CrashMode, Rules, SimulatedCrash, SimulatedDisk, crashes

if TYPE_CHECKING:
    from cometmq.testing.embedded import EmbeddedBroker

__all__ = [
    "CrashMode",
    "EmbeddedBroker",
    "FailingFiles",
    "Rules",
    "SimulatedCrash",
    "SimulatedDisk",
    "VirtualClock",
    "crashes",
]


def __getattr__(name: str) -> Any:
    """Import the embedded broker, and with it the whole system, at first use."""
    if name == "EmbeddedBroker":
        from cometmq.testing.embedded import EmbeddedBroker

        return EmbeddedBroker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
