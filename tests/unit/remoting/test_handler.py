"""The table of handlers."""

from __future__ import annotations

import pytest

from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, HandlerTable, NoHeader, handles
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.namesrv import GetRouteInfoRequest


class Family:
    """Two handlers, one of them for two codes."""

    @handles(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest)
    def route(self, header: GetRouteInfoRequest, request: Command, connection: Connection) -> Answer:
        return Answer()

    @handles(RequestCode.GET_NAMESRV_CONFIG, NoHeader)
    @handles(RequestCode.GET_BROKER_CLUSTER_INFO, NoHeader)
    def other(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        return Answer()


def test_marked_methods_are_found_with_their_headers() -> None:
    table = HandlerTable()
    family = Family()
    table.add_handlers(family)
    assert table.codes == {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_INFO,
    }
    entry = table.get(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert entry is not None
    assert (entry.header, entry.function) == (GetRouteInfoRequest, family.route)
    assert table.get(12345) is None


def test_a_code_has_one_handler() -> None:
    table = HandlerTable()
    table.add_handlers(Family())
    with pytest.raises(ValueError, match="GET_NAMESRV_CONFIG has a handler already"):
        table.add(RequestCode.GET_NAMESRV_CONFIG, NoHeader, lambda *_: Answer())
