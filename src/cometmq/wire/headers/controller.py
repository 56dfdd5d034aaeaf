"""Headers of the controller, which elects masters and gives out broker ids.

CONTROLLER_GET_METADATA_INFO has no request header; CONTROLLER_GET_SYNC_STATE_DATA says all in its body.
Java fills `invokeTime` with the moment of the call; here the caller says it, or leaves it out.
"""

from __future__ import annotations

from cometmq.wire.codes import RequestCode
from cometmq.wire.header.schema import Header, Int32, Int64, request_header, response_header


@request_header(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET)
class AlterSyncStateSetRequest(Header, kw_only=True):
    """Change the set of replicas in sync; it is in the body."""

    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 | None = None
    invoke_time: Int64 | None = None


@response_header(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET)
class AlterSyncStateSetResponse(Header, kw_only=True):
    """The epoch of the new set."""

    new_sync_state_set_epoch: Int32 = 0


@request_header(RequestCode.CONTROLLER_ELECT_MASTER)
class ElectMasterRequest(Header, kw_only=True):
    """Elect a master for a broker name."""

    cluster_name: str
    broker_name: str
    broker_id: Int64
    designate_elect: bool
    """True elects this very broker."""
    invoke_time: Int64 | None = None


@response_header(RequestCode.CONTROLLER_ELECT_MASTER)
class ElectMasterResponse(Header, kw_only=True):
    """Who is master now."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


@request_header(RequestCode.CONTROLLER_REGISTER_BROKER)
class RegisterBrokerToControllerRequest(Header, kw_only=True):
    """Announce a broker that has its id, and ask who is master."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Int64 | None = None
    broker_address: str | None = None
    invoke_time: Int64 = 0


@response_header(RequestCode.CONTROLLER_REGISTER_BROKER)
class RegisterBrokerToControllerResponse(Header, kw_only=True):
    """Who is master; the body is the set of replicas in sync."""

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


@request_header(RequestCode.CONTROLLER_GET_REPLICA_INFO)
class GetReplicaInfoRequest(Header, kw_only=True):
    """Ask who is master of a broker name, and which replicas are in sync."""

    broker_name: str | None = None


@response_header(RequestCode.CONTROLLER_GET_REPLICA_INFO)
class GetReplicaInfoResponse(Header, kw_only=True):
    """Who is master; the body is the set of replicas in sync."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None


@response_header(RequestCode.CONTROLLER_GET_METADATA_INFO)
class GetMetaDataResponse(Header, kw_only=True):
    """Which controller leads."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


@request_header(RequestCode.CLEAN_BROKER_DATA)
class CleanControllerBrokerDataRequest(Header, kw_only=True):
    """Make the controller forget brokers."""

    broker_name: str
    cluster_name: str | None = None
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Int64 | None = None


@request_header(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID)
class GetNextBrokerIdRequest(Header, kw_only=True):
    """Ask for an id that no broker of a broker name has."""

    cluster_name: str | None = None
    broker_name: str | None = None


@response_header(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID)
class GetNextBrokerIdResponse(Header, kw_only=True):
    """An id that is free."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Int64 | None = None


@request_header(RequestCode.CONTROLLER_APPLY_BROKER_ID)
class ApplyBrokerIdRequest(Header, kw_only=True):
    """Claim an id for a broker."""

    cluster_name: str | None = None
    broker_name: str | None = None
    applied_broker_id: Int64 | None = None
    register_check_code: str | None = None


@response_header(RequestCode.CONTROLLER_APPLY_BROKER_ID)
class ApplyBrokerIdResponse(Header, kw_only=True):
    """The id is taken."""

    cluster_name: str | None = None
    broker_name: str | None = None
