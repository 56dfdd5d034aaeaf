"""Refusals of administrators' requests with INVALID_PARAMETER."""

from __future__ import annotations

from cometmq.model.errors import CometError
from cometmq.wire.codes import ResponseCode


def invalid(message: str) -> CometError:
    return CometError(message, code=ResponseCode.INVALID_PARAMETER)


def raise_if(refusal: str | None) -> None:
    """Refuse a request if there is a reason to."""
    if refusal is not None:
        raise invalid(refusal)
