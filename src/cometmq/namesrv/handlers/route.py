"""Route look-ups and cluster info."""

from __future__ import annotations

from cometmq.namesrv.routes import only_zone
from cometmq.namesrv.state import NamesrvState
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, Result, handles
from cometmq.wire.bodies.route import encode_cluster_info, encode_route
from cometmq.wire.codes import V4_9_4, RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.namesrv import GetRouteInfoRequest
from cometmq.wire.takeovers import ClusterInfoRequest

_FAQ = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


def wants_standard(header: GetRouteInfoRequest, request: Command) -> bool:
    """Whether a client reads routes as standard JSON; others get the older form."""
    return request.version >= V4_9_4 or header.accept_standard_json_only is True


class RouteHandlers:
    """Look-ups by clients and tools."""

    def __init__(self, state: NamesrvState) -> None:
        self._state = state

    @handles(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest)
    def route(self, header: GetRouteInfoRequest, request: Command, connection: Connection) -> Result:
        state = self._state
        config = state.config
        if config.need_wait_for_service:
            up_ms = state.clock.monotonic_ms() - state.started_ms
            if up_ms < config.wait_seconds_for_service * 1000:
                return Answer(ResponseCode.SYSTEM_ERROR, remark="name server not ready")
        standard = wants_standard(header, request)
        if header.zone_mode and (zone := (header.zone_name or "").strip()):
            route = state.find_route(header.topic)
            if route is not None:
                return Answer(body=encode_route(only_zone(route, zone), standard=standard))
        return state.routes.get(header.topic, standard, state.find_route) or self.no_route(header.topic)

    @staticmethod
    def no_route(topic: str) -> Answer:
        remark = f"No topic route info in name server for the topic: {topic}\n{_FAQ}"
        return Answer(ResponseCode.TOPIC_NOT_EXIST, remark=remark)

    @handles(RequestCode.GET_BROKER_CLUSTER_INFO, ClusterInfoRequest)
    def cluster_info(self, header: ClusterInfoRequest) -> Answer:
        """All brokers, by name and by cluster; with takeovers on request."""
        tables = self._state.tables
        takeovers = self._state.takeovers.recent() if header.takeovers else ()
        return Answer(body=encode_cluster_info(tables.brokers, tables.clusters, takeovers))
