"""How much came in and went out lately, as monitors ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, handles
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.admin import ViewBrokerStatsDataRequest
from cometmq.wire.json.pretty import dumps_table

if TYPE_CHECKING:
    from cometmq.broker.context import BrokerContext


class StatisticsHandlers:
    """VIEW_BROKER_STATS_DATA."""

    def __init__(self, context: BrokerContext) -> None:
        self._statistics = context.statistics

    @handles(RequestCode.VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataRequest)
    def view(self, header: ViewBrokerStatsDataRequest, request: Command, connection: Connection) -> Answer:
        """One number of the broker over the last minute, hour and day."""
        found = self._statistics.find(header.stats_name, header.stats_key)
        if found is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        return Answer(body=dumps_table(found, pretty=False))
