"""Brokers come, say that they are alive, and leave."""

from __future__ import annotations

import asyncio
import logging
import zlib
from typing import Final

import msgspec

from cometmq.model.errors import HeaderError
from cometmq.model.names import ORDER_TOPIC_NAMESPACE
from cometmq.model.topic import DataVersion
from cometmq.namesrv.state import NamesrvState
from cometmq.namesrv.tables import BrokerLeft, BrokerRegistration
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, Result, handles
from cometmq.wire.bodies.json_body import decode_json_body, encode_kv_table
from cometmq.wire.bodies.registration import Registration, decode_registration
from cometmq.wire.bodies.route import encode_member_group
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.namesrv import (
    BrokerHeartbeatRequest,
    GetBrokerMemberGroupRequest,
    QueryDataVersionRequest,
    QueryDataVersionResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnRegisterBrokerRequest,
)

log = logging.getLogger("cometmq.namesrv")

MAX_BROKERS: Final = 20_000
MAX_TOPICS: Final = 200_000
"""With this many brokers or topics, a new broker is refused."""
_LARGE_BODY: Final = 128 * 1024
"""A larger body is read on a thread."""
_UNSET: Final = "not set any response code"
"""Apache's server forgets to clear this remark of its successful answer, so it is part of that answer."""


class RegistrationHandlers:
    """Registration, heartbeat, data version, unregistration, members of a group."""

    def __init__(self, state: NamesrvState) -> None:
        self._state = state
        self._reading_large = asyncio.Lock()
        """One large body is read at a time, because that holds the interpreter."""

    @handles(RequestCode.REGISTER_BROKER, RegisterBrokerRequest)
    def register(self, header: RegisterBrokerRequest, request: Command, connection: Connection) -> Result:
        """Check the body, take the broker in, tell a replica where its master is."""
        body = request.body
        if header.body_crc32 and zlib.crc32(body) & 0x7FFFFFFF != header.body_crc32:
            return _refuse("crc32 not match")
        if len(body) > _LARGE_BODY:
            return self._register_large(header, request, connection)
        return self._register(header, _decode(header, request), connection)

    async def _register_large(
        self, header: RegisterBrokerRequest, request: Command, connection: Connection
    ) -> Answer:
        """Read a large body on a thread."""
        async with self._reading_large:
            said = await asyncio.to_thread(_decode, header, request)
        return self._register(header, said, connection)

    def _register(
        self, header: RegisterBrokerRequest, said: Registration | HeaderError, connection: Connection
    ) -> Answer:
        if isinstance(said, HeaderError):
            return _refuse(f"Failed to decode RegisterBrokerBody: {said.message}")
        state = self._state
        key = (header.cluster_name, header.broker_addr)
        topics = state.tables.topics
        is_new = key not in state.tables.live
        if (is_new and len(state.tables.live) >= MAX_BROKERS) or (
            len(topics) + len(said.topics) > MAX_TOPICS
            and len(topics) + len(said.topics.keys() - topics.keys()) > MAX_TOPICS
        ):
            return _refuse(
                f"the name server has {len(state.tables.live)} brokers and {len(topics)} "
                f"topics; {MAX_BROKERS} and {MAX_TOPICS} are possible"
            )
        if is_new:
            who = f"{header.broker_name} ({header.broker_addr}, id {header.broker_id})"
            log.info("broker %s of %s registers %d topics", who, header.cluster_name, len(said.topics))
        new = _registration(header, said, connection)
        registered = state.tables.register(
            new,
            state.clock.monotonic_ms(),
            delete_missing_topics=state.config.delete_topic_with_broker_registration,
        )
        if registered is None:
            return _refuse("register broker failed")
        state.takeovers.note(new, registered, connection.remote_address)
        state.notify(registered.min_id_change)
        order = None
        if state.config.return_order_topic_config_to_broker:
            order = state.kv.namespace(ORDER_TOPIC_NAMESPACE)
        return Answer(
            header=RegisterBrokerResponse(
                ha_server_addr=registered.ha_server_addr, master_addr=registered.master_addr
            ),
            body=b"" if order is None else encode_kv_table(dict(order)),
        )

    @handles(RequestCode.UNREGISTER_BROKER, UnRegisterBrokerRequest)
    def unregister(self, header: UnRegisterBrokerRequest, connection: Connection) -> Answer:
        """An orderly stop of a broker."""
        left = BrokerLeft(header.cluster_name, header.broker_name, header.broker_addr, header.broker_id)
        known = self._state.tables.live.get((left.cluster, left.broker_addr))
        if known is not None and known.channel is not connection:
            log.warning(
                "broker %s (%s) is unregistered by %s, over another connection than it registered on",
                *(left.broker_name, left.broker_addr, connection.remote_address),
            )
        self._state.remove([left], "it unregistered")
        return Answer()

    @handles(RequestCode.QUERY_DATA_VERSION, QueryDataVersionRequest)
    def query_data_version(self, header: QueryDataVersionRequest, request: Command) -> Answer:
        """Whether the broker has to register again; counts as a heartbeat."""
        state = self._state
        key = (header.cluster_name, header.broker_addr)
        asked = decode_json_body(DataVersion, request.body) if request.body else None
        known = state.tables.data_version(key)
        state.tables.heard_of(key, state.clock.monotonic_ms())
        return Answer(
            header=QueryDataVersionResponse(changed=asked is None or asked != known),
            body=b"" if known is None else msgspec.json.encode(known, order="sorted"),
        )

    @handles(RequestCode.BROKER_HEARTBEAT, BrokerHeartbeatRequest)
    def heartbeat(self, header: BrokerHeartbeatRequest) -> Answer:
        key = (header.cluster_name, header.broker_addr)
        self._state.tables.heard_of(key, self._state.clock.monotonic_ms())
        return Answer()

    @handles(RequestCode.GET_BROKER_MEMBER_GROUP, GetBrokerMemberGroupRequest)
    def member_group(self, header: GetBrokerMemberGroupRequest) -> Answer:
        """The master and the replicas of a broker name; nobody, if it is unknown."""
        broker = self._state.tables.brokers.get(header.broker_name)
        known = broker is not None and broker.cluster == header.cluster_name
        addresses = broker.broker_addrs if broker is not None and known else {}
        body = encode_member_group(header.cluster_name, header.broker_name, addresses)
        return Answer(body=body, remark=_UNSET)


def _decode(header: RegisterBrokerRequest, request: Command) -> Registration | HeaderError:
    try:
        return decode_registration(request.body, version=request.version, compressed=header.compressed)
    except HeaderError as error:
        return error


def _refuse(remark: str) -> Answer:
    return Answer(ResponseCode.SYSTEM_ERROR, header=RegisterBrokerResponse(), remark=remark)


def _registration(
    header: RegisterBrokerRequest, said: Registration, connection: Connection
) -> BrokerRegistration:
    return BrokerRegistration(
        cluster=header.cluster_name,
        broker_name=header.broker_name,
        broker_addr=header.broker_addr,
        broker_id=header.broker_id,
        ha_server_addr=header.ha_server_addr,
        channel=connection,
        data_version=said.data_version,
        topics=said.topics,
        mappings=said.mappings,
        filter_servers=said.filter_servers,
        timeout_ms=header.heartbeat_timeout_millis,
        enable_acting_master=header.enable_acting_master,
        zone_name=header.zone_name,
    )
