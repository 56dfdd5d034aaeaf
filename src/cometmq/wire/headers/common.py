"""What the headers of many requests share.

Rules kept here:
- Fields that a request inherits in Java are inherited here, so that each family module lists only its own.
- The inherited keys are short on the wire and carry their meaning in the Python name.
"""

from __future__ import annotations

from msgspec import field

from cometmq.wire.header.schema import Header


class RpcRequest(Header, kw_only=True):
    """The keys that any request to a broker may carry."""

    target_broker_name: str | None = field(name="bname", default=None)
    """The broker name that the client means; a broker that answers for itself may ignore it."""
    namespace: str | None = field(name="ns", default=None)
    namespaced: bool | None = field(name="nsd", default=None)
    """True when `namespace` is to be put before the names in the request."""
    oneway: bool | None = field(name="oway", default=None)


class TopicRequest(RpcRequest, kw_only=True):
    """The keys that any request about a topic may carry."""

    logical: bool | None = field(name="lo", default=None)
    """False turns the queue mapping of a static topic off; True asks for it."""
