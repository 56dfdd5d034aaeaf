"""The bytes of the HA protocol.

A slave sends reports of 8 bytes: the offset up to which it has the log. A master sends frames: the offset of
the first byte, the number of bytes, and these bytes of the log. A frame without bytes is a heartbeat.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import msgspec

from cometmq.model.errors import ProtocolError

REPORT: Final = Struct(">q")
HEAD: Final = Struct(">qi")
LARGEST_FRAME: Final = 4 * 1024 * 1024 - HEAD.size - 1
"""Apache's slaves cannot read a larger one."""


class ReplicationError(ProtocolError):
    """Why a connection between a master and a slave has to be closed."""


class Timing(msgspec.Struct, frozen=True):
    """What both sides of a connection agree on by their settings, in seconds."""

    heartbeat_s: float = 5.0
    silence_s: float = 20.0
    """A peer that was silent for longer is gone."""
