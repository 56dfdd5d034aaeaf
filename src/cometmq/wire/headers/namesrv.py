"""Headers of the requests that a name server answers, and of the one that it sends.

106, 206, 304, 311, 312, 313, 318 and 319 have no header: they ask for everything, or say it in their body.
"""

from __future__ import annotations

from msgspec import field

from cometmq.wire.codes import RequestCode
from cometmq.wire.header.schema import Header, Int32, Int64, request_header, response_header
from cometmq.wire.headers.common import TopicRequest


@request_header(RequestCode.PUT_KV_CONFIG)
class PutKVConfigRequest(Header, kw_only=True):
    """Store a value under a key of a namespace."""

    namespace: str
    key: str
    value: str


@request_header(RequestCode.GET_KV_CONFIG)
class GetKVConfigRequest(Header, kw_only=True):
    """Read the value under a key of a namespace."""

    namespace: str
    key: str


@response_header(RequestCode.GET_KV_CONFIG)
class GetKVConfigResponse(Header, kw_only=True):
    """The value that was asked for."""

    value: str | None = None


@request_header(RequestCode.DELETE_KV_CONFIG)
class DeleteKVConfigRequest(Header, kw_only=True):
    """Delete a key of a namespace."""

    namespace: str
    key: str


@request_header(RequestCode.GET_KVLIST_BY_NAMESPACE)
class GetKVListByNamespaceRequest(Header, kw_only=True):
    """Read all keys and values of a namespace."""

    namespace: str


@request_header(RequestCode.REGISTER_BROKER)
class RegisterBrokerRequest(Header, kw_only=True):
    """Announce a broker and its topics, or some of its topics; the topics are in the body."""

    broker_name: str
    broker_addr: str
    """The address that clients will dial."""
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    """0 is the master."""
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    """Absent in the registration of a broker that knows no acting masters."""
    compressed: bool = False
    body_crc32: Int32 = 0
    """0 leaves the body unchecked."""
    zone_name: str | None = field(name="__ZONE_NAME", default=None)
    zone_mode: bool | None = field(name="__ZONE_MODE", default=None)


@response_header(RequestCode.REGISTER_BROKER)
class RegisterBrokerResponse(Header, kw_only=True):
    """Where a registering slave finds its master; empty for a master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@request_header(RequestCode.UNREGISTER_BROKER)
class UnRegisterBrokerRequest(Header, kw_only=True):
    """Take a broker out of all routes."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@request_header(RequestCode.QUERY_DATA_VERSION)
class QueryDataVersionRequest(Header, kw_only=True):
    """Ask whether the name server knows the topics as of the data version in the body."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@response_header(RequestCode.QUERY_DATA_VERSION)
class QueryDataVersionResponse(Header, kw_only=True):
    """Whether the broker has to register its topics again; the body is the version known here."""

    changed: bool


@request_header(RequestCode.BROKER_HEARTBEAT)
class BrokerHeartbeatRequest(Header, kw_only=True):
    """Say that a broker is alive; the optional fields are for a controller."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None


@request_header(RequestCode.GET_BROKER_MEMBER_GROUP)
class GetBrokerMemberGroupRequest(Header, kw_only=True):
    """Ask for the addresses of all members of a broker name."""

    cluster_name: str
    broker_name: str


@request_header(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE)
class NotifyMinBrokerIdChangeRequest(Header, kw_only=True):
    """Tell the members of a broker name which of them has the lowest id now."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


@request_header(RequestCode.GET_ROUTEINFO_BY_TOPIC)
class GetRouteInfoRequest(TopicRequest, kw_only=True):
    """Ask for the queues and the broker addresses of a topic."""

    topic: str
    accept_standard_json_only: bool | None = None
    """True asks for quoted keys whatever the version of the client."""
    zone_name: str | None = field(name="__ZONE_NAME", default=None)
    zone_mode: bool | None = field(name="__ZONE_MODE", default=None)
    """True asks for the brokers of `zone_name` only."""


@request_header(RequestCode.WIPE_WRITE_PERM_OF_BROKER)
class WipeWritePermOfBrokerRequest(Header, kw_only=True):
    """Take the write permission from every topic of a broker name."""

    broker_name: str


@response_header(RequestCode.WIPE_WRITE_PERM_OF_BROKER)
class WipeWritePermOfBrokerResponse(Header, kw_only=True):
    """How many topics lost the write permission."""

    wipe_topic_count: Int32


@request_header(RequestCode.ADD_WRITE_PERM_OF_BROKER)
class AddWritePermOfBrokerRequest(Header, kw_only=True):
    """Give the write permission to every topic of a broker name."""

    broker_name: str


@response_header(RequestCode.ADD_WRITE_PERM_OF_BROKER)
class AddWritePermOfBrokerResponse(Header, kw_only=True):
    """How many topics got the write permission."""

    add_topic_count: Int32


@request_header(RequestCode.DELETE_TOPIC_IN_NAMESRV)
class DeleteTopicFromNamesrvRequest(TopicRequest, kw_only=True):
    """Delete the route of a topic, in one cluster or in all."""

    topic: str
    cluster_name: str | None = None


@request_header(RequestCode.REGISTER_TOPIC_IN_NAMESRV)
class RegisterTopicRequest(TopicRequest, kw_only=True):
    """Announce the queues of one topic; they are in the body."""

    topic: str


@request_header(RequestCode.GET_TOPICS_BY_CLUSTER)
class GetTopicsByClusterRequest(Header, kw_only=True):
    """Ask for the topics of a cluster."""

    cluster: str
