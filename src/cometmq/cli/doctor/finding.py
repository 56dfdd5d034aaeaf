"""A finding: what is wrong, where, and what to do about it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Level(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """Something does not work, or messages are in danger."""
    WARNING = "warning"
    """It works, and will not for long, or not as one would think."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong."""

    check: str
    """Which kind of trouble; stable, for programs."""
    level: Level
    subject: str
    """The name or address of what is in trouble."""
    text: str
    advice: str
