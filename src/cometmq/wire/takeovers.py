"""Asking a name server of ours for the routes that moved to another address.

GET_BROKER_CLUSTER_INFO has no header in RocketMQ. Apache's name server does not look at this one, and a
client that does not send it gets Apache's answer from ours.
"""

from __future__ import annotations

from cometmq.wire.header.header import Header


class ClusterInfoRequest(Header, kw_only=True):
    """What is wanted beside the brokers and clusters."""

    takeovers: bool = False
