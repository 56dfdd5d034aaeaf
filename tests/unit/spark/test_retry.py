"""Retries: a broker that is away or busy is waited for, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cometmq.model.errors import (
    ClientError,
    CometError,
    ConnectError,
    ResponseError,
    RouteNotFoundError,
    SendError,
)
from cometmq.spark.retry import is_transient, retry
from cometmq.wire.codes import ResponseCode


def failing(error: CometError, times: int) -> tuple[Callable[[], Awaitable[str]], list[int]]:
    """An attempt that fails a number of times, and the list of its calls."""
    calls: list[int] = []

    async def attempt() -> str:
        calls.append(len(calls))
        if len(calls) <= times:
            raise error
        return "stored"

    return attempt, calls


def caused_by(cause: CometError) -> CometError:
    error = SendError("no broker took it")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ConnectError("away"), True),
        (RouteNotFoundError("no route"), True),
        (ResponseError("busy", code=ResponseCode.SYSTEM_BUSY), True),
        (ResponseError("slow down", code=ResponseCode.FLOW_CONTROL), True),
        (caused_by(ConnectError("away")), True),
        (ResponseError("refused", code=ResponseCode.NO_PERMISSION), False),
        (caused_by(ResponseError("refused", code=ResponseCode.SYSTEM_ERROR)), False),
        (ClientError("wrong"), False),
    ],
)
def test_a_failure_passes_if_a_broker_is_away_or_busy(error: CometError, passes: bool) -> None:
    assert is_transient(error) is passes


def test_an_attempt_is_repeated_until_it_succeeds_and_recovers_in_between() -> None:
    attempt, calls = failing(ConnectError("away"), 2)
    recovered: list[str] = []

    async def recover() -> None:
        recovered.append("looked for the broker")
        raise ConnectError("the name server is away, too")

    assert asyncio.run(retry(attempt, 60.0, recover=recover)) == "stored"
    assert len(calls) == 3
    assert len(recovered) == 2


@pytest.mark.parametrize(
    ("error", "timeout_s", "route_timeout_s"),
    [
        (ClientError("wrong"), 60.0, 60.0),
        (ConnectError("away"), 0.0, 60.0),
        (RouteNotFoundError("no route"), 60.0, 0.0),
    ],
)
def test_the_error_is_raised_where_waiting_is_no_use_or_over(
    error: CometError, timeout_s: float, route_timeout_s: float
) -> None:
    attempt, calls = failing(error, 1)
    with pytest.raises(type(error)):
        asyncio.run(retry(attempt, timeout_s, route_timeout_s=route_timeout_s))
    assert len(calls) == 1
