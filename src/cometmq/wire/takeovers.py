"""The request header that asks CometMQ's name server for takeovers: routes that moved to another address.

GET_BROKER_CLUSTER_INFO has no header in RocketMQ. Apache's name server ignores this one, and a client that
does not send it gets Apache's answer from ours.
"""

from __future__ import annotations

from cometmq.wire.header.schema import Header


class ClusterInfoRequest(Header, kw_only=True):
    """What is wanted beside the brokers and clusters."""

    takeovers: bool = False
