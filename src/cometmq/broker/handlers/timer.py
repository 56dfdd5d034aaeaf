"""How far timed messages are, for slaves and for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, NoHeader, handles
from cometmq.store.tables.tables import TimerMetricsTable
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.json.pretty import dumps_table

if TYPE_CHECKING:
    from cometmq.broker.context import BrokerContext


class TimerHandlers:
    """GET_TIMER_CHECK_POINT and GET_TIMER_METRICS."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    @handles(RequestCode.GET_TIMER_CHECK_POINT, NoHeader)
    def checkpoint(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        """What is saved about the progress of the timers."""
        if not self._context.timers.runs:
            return Answer(ResponseCode.SYSTEM_ERROR, remark="The checkpoint is null")
        return Answer(body=self._context.timers.progress.pack())

    @handles(RequestCode.GET_TIMER_METRICS, NoHeader)
    def metrics(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        """How many messages of each topic wait for their time."""
        if not self._context.timers.runs:
            return Answer(ResponseCode.SYSTEM_ERROR, remark="The timerMessageStore is null")
        table = TimerMetricsTable(*self._context.timers.counts.copy())
        return Answer(body=dumps_table(table.completed(), pretty=False))
