"""Headers between the members of a broker name: replication addresses, flush offsets, roles.

GET_BROKER_HA_STATUS and GET_BROKER_EPOCH_CACHE have no header. BROKER_HEARTBEAT and
NOTIFY_MIN_BROKER_ID_CHANGE are in `namesrv`, which answers the one and sends the other.
"""

from __future__ import annotations

from cometmq.wire.codes import RequestCode
from cometmq.wire.header.schema import Header, Int32, Int64, request_header, response_header


@request_header(RequestCode.EXCHANGE_BROKER_HA_INFO)
class ExchangeHAInfoRequest(Header, kw_only=True):
    """Tell a member where the master replicates from, or ask the master for it."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


@response_header(RequestCode.EXCHANGE_BROKER_HA_INFO)
class ExchangeHAInfoResponse(Header, kw_only=True):
    """Where the master replicates from; empty from a slave."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


@request_header(RequestCode.RESET_MASTER_FLUSH_OFFSET)
class ResetMasterFlushOffset(Header, kw_only=True):
    """Set the offset up to which a slave takes the master's log for flushed."""

    master_flush_offset: Int64


@request_header(RequestCode.NOTIFY_BROKER_ROLE_CHANGED)
class NotifyBrokerRoleChangedRequest(Header, kw_only=True):
    """Tell a broker who is master now; the body is the set of replicas in sync."""

    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None
