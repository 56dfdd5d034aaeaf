"""How much one heartbeat may say.

A heartbeat is registered in one turn of the event loop. Everything in it that a client can make larger has a
limit here, far above what a client with many consumers needs, so that the turn stays short.
"""

from __future__ import annotations

from typing import Final

from cometmq.model.errors import CometError
from cometmq.wire.bodies.heartbeat import HeartbeatData
from cometmq.wire.codes import ResponseCode
from cometmq.wire.frame.command import Body

MAX_HEARTBEAT_BYTES: Final = 2 * 1024 * 1024
MAX_GROUPS_OF_HEARTBEAT: Final = 1_000
"""Producer and consumer groups together."""
MAX_SUBSCRIPTIONS_OF_HEARTBEAT: Final = 4_000
"""Of all groups together."""
MAX_NAME: Final = 1_024
"""The longest client id."""


def refuse_large_body(body: Body) -> None:
    """Raise `CometError` for a heartbeat that is not even read."""
    if len(body) > MAX_HEARTBEAT_BYTES:
        raise _too_large(f"of {len(body)} bytes", f"{MAX_HEARTBEAT_BYTES} bytes")


def refuse_large(data: HeartbeatData) -> None:
    """Raise `CometError` for a heartbeat that says too much."""
    groups = len(data.producer_data_set) + len(data.consumer_data_set)
    if groups > MAX_GROUPS_OF_HEARTBEAT:
        raise _too_large(f"of {groups} groups", f"{MAX_GROUPS_OF_HEARTBEAT} groups")
    subscriptions = sum(len(consumer.subscription_data_set) for consumer in data.consumer_data_set)
    if subscriptions > MAX_SUBSCRIPTIONS_OF_HEARTBEAT:
        raise _too_large(
            f"of {subscriptions} subscriptions", f"{MAX_SUBSCRIPTIONS_OF_HEARTBEAT} subscriptions"
        )
    if len(data.client_id) > MAX_NAME:
        raise _too_large(f"with a client id of {len(data.client_id)} characters", f"{MAX_NAME} characters")


def _too_large(found: str, allowed: str) -> CometError:
    return CometError(
        f"a heartbeat {found} is refused, {allowed} are allowed; start fewer consumers and producers with "
        "one client id",
        code=ResponseCode.ILLEGAL_OPERATION,
    )
