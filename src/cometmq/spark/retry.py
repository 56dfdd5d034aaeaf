"""Which failures pass by themselves, so that a query waits instead of ending."""

from __future__ import annotations

from typing import Final

from cometmq.model.errors import CometError, ResponseError
from cometmq.wire.codes import ResponseCode

_PASSING: Final = frozenset({ResponseCode.SYSTEM_BUSY.value, ResponseCode.SERVICE_NOT_AVAILABLE.value})
"""What brokers answer for a while only."""


def is_passing(error: CometError) -> bool:
    """Whether the same question may be answered later."""
    return error.retriable or (isinstance(error, ResponseError) and error.code in _PASSING)
