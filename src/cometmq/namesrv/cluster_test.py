"""The cluster-test processor: a test environment that borrows routes from production.

With `clusterTest=true`, a topic without a route here is looked up in the production environment that
`productEnvName` names. Its name servers come from `productEnvNamesrvAddr`, from the variable NAMESRV_ADDR, or
from RocketMQ's address service over HTTP. Brokers may register here, too: local routes come first.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from cometmq.model.errors import CometError
from cometmq.model.route import TopicRoute
from cometmq.namesrv.config import NamesrvConfig
from cometmq.namesrv.handlers.route import RouteHandlers, wants_standard
from cometmq.namesrv.state import NamesrvState
from cometmq.remoting.client import RemotingClient
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, Result, handles
from cometmq.remoting.name_server_addresses import (
    APACHE_DOMAIN,
    DOMAIN_VARIABLE,
    address_server_url,
    fetch_addresses,
    listed_in,
    parse_addresses,
)
from cometmq.wire.bodies.json_body import decode_answer
from cometmq.wire.bodies.route import encode_route
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.namesrv import GetRouteInfoRequest

log = logging.getLogger("cometmq.namesrv")

_TIMEOUT_S: Final = 3.0


class ProductionAddresses:
    """Finds the name servers of the production environment."""

    def __init__(self, config: NamesrvConfig, configured: str | None, environment: Mapping[str, str]) -> None:
        self._listed = configured or listed_in(environment)
        domain = environment.get(DOMAIN_VARIABLE, APACHE_DOMAIN)
        self._url = address_server_url(domain, unit=config.product_env_name, environment=environment)

    async def find(self) -> tuple[str, ...]:
        return parse_addresses(self._listed) if self._listed else await fetch_addresses(self._url)


class ClusterTestRouteHandlers(RouteHandlers):
    """Local routes first, then production's."""

    def __init__(self, state: NamesrvState, client: RemotingClient, addresses: ProductionAddresses) -> None:
        super().__init__(state)
        self._client = client
        self._addresses = addresses

    @handles(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest)
    def route(self, header: GetRouteInfoRequest, request: Command, connection: Connection) -> Result:
        answer = super().route(header, request, connection)
        if isinstance(answer, Answer) and answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return self._from_production(header, standard=wants_standard(header, request))
        return answer

    async def _from_production(self, header: GetRouteInfoRequest, *, standard: bool) -> Answer:
        asked = GetRouteInfoRequest(topic=header.topic)
        try:
            for address in await self._addresses.find():
                answer = await self._ask(address, asked)
                if answer is not None and answer.code == ResponseCode.SUCCESS:
                    route = decode_answer(TopicRoute, answer.body)
                    return Answer(body=encode_route(route, standard=standard))
        except CometError as error:
            log.warning("the production route of %s is not known: %s", header.topic, error)
        return self.no_route(header.topic)

    async def _ask(self, address: str, asked: GetRouteInfoRequest) -> Command | None:
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        try:
            return await self._client.call(address, code, asked, timeout_s=_TIMEOUT_S)
        except CometError as error:
            log.warning("%s did not answer for production: %s", address, error)
            return None
