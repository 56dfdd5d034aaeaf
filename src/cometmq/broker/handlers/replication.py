"""Requests about replication: GET_BROKER_HA_STATUS and EXCHANGE_BROKER_HA_INFO."""

from __future__ import annotations

import msgspec

from cometmq.broker.context import BrokerContext
from cometmq.remoting.handler import Answer, handles
from cometmq.replication.server import ReplicaStatus
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.ha import ExchangeHAInfoRequest, ExchangeHAInfoResponse
from cometmq.wire.json.pretty import dumps_table


class _ClientStatus(msgspec.Struct, rename="camel"):
    """How a slave follows."""

    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_addr: str | None = None
    master_flush_offset: int = 0
    max_offset: int = 0
    transferred_byte_in_second: int = 0


class _Status(msgspec.Struct, rename="camel"):
    """What `mqadmin haStatus` shows."""

    ha_client_runtime_info: _ClientStatus
    ha_connection_info: list[ReplicaStatus]
    in_sync_slave_nums: int
    master: bool
    master_commit_log_max_offset: int


class ReplicationHandlers:
    """The state of master and slaves."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    @handles(RequestCode.GET_BROKER_HA_STATUS)
    def status(self) -> Answer:
        """The slaves of a master, or how a slave follows."""
        context = self._context
        end = context.store.log.max_offset
        if context.ha_server is not None:
            replicas = context.ha_server.status()
            in_sync = sum(replica.in_sync for replica in replicas)
            status = _Status(_ClientStatus(), replicas, in_sync, True, end)
        else:
            client = context.ha_client
            assert client is not None
            follows = _ClientStatus(client.read_ms, client.wrote_ms, client.address, 0, end, client.rate)
            status = _Status(follows, [], 0, False, 0)
        return Answer(body=dumps_table(status, pretty=False))

    @handles(RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoRequest)
    def exchange(self) -> Answer:
        """Where a slave finds the log and the tables of this master; empty from a slave."""
        context = self._context
        if context.ha_server is None:
            return Answer(header=ExchangeHAInfoResponse())
        return Answer(
            header=ExchangeHAInfoResponse(
                master_ha_address=context.ha_address,
                master_flush_offset=context.store.flusher.flushed_offset,
                master_address=context.address,
            )
        )
