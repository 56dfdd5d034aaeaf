"""The table of handlers."""

from __future__ import annotations

from typing import Any

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


def test_a_method_may_leave_out_arguments() -> None:
    class Short:
        @handles(RequestCode.GET_NAMESRV_CONFIG)
        def nothing(self) -> Answer:
            return Answer(remark="nothing")

        @handles(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest)
        def some(self, header: GetRouteInfoRequest, connection: str) -> Answer:
            return Answer(remark=f"{header.topic} by {connection}")

    table = HandlerTable()
    table.add_handlers(Short())
    said = []
    for code in (RequestCode.GET_NAMESRV_CONFIG, RequestCode.GET_ROUTEINFO_BY_TOPIC):
        entry = table.get(code)
        assert entry is not None
        arguments: tuple[Any, ...] = (GetRouteInfoRequest(topic="T"), None, "c")
        answer = entry.function(*arguments)
        assert isinstance(answer, Answer)
        said.append(answer.remark)
    assert said == ["nothing", "T by c"]


def test_a_method_takes_the_header_it_is_marked_for() -> None:
    class Wrong:
        @handles(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest)
        def route(self, header: NoHeader) -> Answer:
            return Answer()

    with pytest.raises(TypeError, match="marked for GetRouteInfoRequest and takes NoHeader"):
        HandlerTable().add_handlers(Wrong())
