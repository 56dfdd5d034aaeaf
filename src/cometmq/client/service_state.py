"""Where a client is in its life."""

from __future__ import annotations

from enum import Enum


class ServiceState(Enum):
    """Where a client is in its life."""

    CREATED = "not started"
    RUNNING = "running"
    START_FAILED = "failed at its start"
    STOPPED = "stopped"
