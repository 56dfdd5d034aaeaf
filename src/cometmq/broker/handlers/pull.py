"""Pulls of consumers; only the main port serves them."""

from __future__ import annotations

from cometmq.broker.context import BrokerContext
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Result, handles
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.pull import PullMessageRequest


class PullHandlers:
    """PULL_MESSAGE, and the same for consumers that pull on their own."""

    def __init__(self, context: BrokerContext) -> None:
        self._puller = context.puller

    @handles(RequestCode.LITE_PULL_MESSAGE, PullMessageRequest)
    @handles(RequestCode.PULL_MESSAGE, PullMessageRequest)
    def pull(self, header: PullMessageRequest, request: Command, connection: Connection) -> Result:
        """Messages of one queue from an offset on."""
        return self._puller.pull(header, request, connection)
