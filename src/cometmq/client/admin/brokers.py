"""Administration of servers: the state and the settings of brokers and name servers.

Rules kept here: what concerns name servers is done on every one of them, as they do not tell each other.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cometmq.client.admin.base import AdminBase
from cometmq.model.errors import HeaderError
from cometmq.wire.bodies.json_body import decode_answer
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import Body
from cometmq.wire.headers.namesrv import (
    AddWritePermOfBrokerRequest,
    AddWritePermOfBrokerResponse,
    WipeWritePermOfBrokerRequest,
    WipeWritePermOfBrokerResponse,
)
from cometmq.wire.java_properties import format_properties, parse_properties


class _Table(msgspec.Struct):
    table: dict[str, str] = {}


class BrokerAdmin(AdminBase):
    """Shows and changes brokers and name servers."""

    async def broker_info(self, broker: str) -> dict[str, str]:
        """What the broker at this address says about its state: counters, rates, disk, version."""
        answer = await self._ask(broker, RequestCode.GET_BROKER_RUNTIME_INFO)
        return decode_answer(_Table, answer.body).table

    async def broker_config(self, broker: str) -> dict[str, str]:
        """Every setting of the broker at this address."""
        answer = await self._ask(broker, RequestCode.GET_BROKER_CONFIG)
        return _properties(answer.body)

    async def set_broker_config(self, broker: str, changes: Mapping[str, str]) -> None:
        """Change settings of the broker at this address; keys that it does not know are ignored."""
        body = format_properties(changes).encode()
        await self._ask(broker, RequestCode.UPDATE_BROKER_CONFIG, body=body)

    def name_servers(self) -> tuple[str, ...]:
        """The addresses of the name servers."""
        return self._instance.name_servers.addresses

    async def name_server_config(self, namesrv: str) -> dict[str, str]:
        """Every setting of the name server at this address."""
        answer = await self._ask(namesrv, RequestCode.GET_NAMESRV_CONFIG)
        return _properties(answer.body)

    async def set_name_server_config(self, namesrv: str, changes: Mapping[str, str]) -> None:
        """Change settings of the name server at this address."""
        body = format_properties(changes).encode()
        await self._ask(namesrv, RequestCode.UPDATE_NAMESRV_CONFIG, body=body)

    async def wipe_write_permission(self, broker_name: str) -> int:
        """Have no producer send to a broker name any more; the answer is how many topics that is about."""
        count = 0
        for address in self.name_servers():
            header = WipeWritePermOfBrokerRequest(broker_name=broker_name)
            answer = await self._ask(address, RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
            count = max(count, answer.header(WipeWritePermOfBrokerResponse).wipe_topic_count)
        return count

    async def add_write_permission(self, broker_name: str) -> int:
        """Let producers send to a broker name again; the answer is how many topics that is about."""
        count = 0
        for address in self.name_servers():
            header = AddWritePermOfBrokerRequest(broker_name=broker_name)
            answer = await self._ask(address, RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
            count = max(count, answer.header(AddWritePermOfBrokerResponse).add_topic_count)
        return count


def _properties(body: Body) -> dict[str, str]:
    try:
        return parse_properties(str(body, "utf-8"))
    except UnicodeDecodeError:
        raise HeaderError("the settings in the answer are not UTF-8") from None
