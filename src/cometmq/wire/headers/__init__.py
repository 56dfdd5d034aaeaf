"""The declared headers, one module a family; importing this package declares them all."""

from __future__ import annotations

from cometmq.wire.headers import (
    admin,
    auth,
    controller,
    group,
    ha,
    namesrv,
    offset,
    pop,
    pull,
    send,
    session,
    topic,
)

__all__ = [
    "admin",
    "auth",
    "controller",
    "group",
    "ha",
    "namesrv",
    "offset",
    "pop",
    "pull",
    "send",
    "session",
    "topic",
]
