"""Finds out whether brokers that failed can be reached again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from cometmq.client.instance.instance import ClientInstance
from cometmq.client.producer.broker_latency import BrokerFaults
from cometmq.client.producer.settings import ProducerSettings
from cometmq.model.errors import CometError
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.offset import GetMaxOffsetRequest

log = logging.getLogger("cometmq.client")

_PERIOD_S: Final = 3.0


class FaultDetector:
    """Asks unreachable brokers something small, now and then; any answer will do."""

    def __init__(
        self,
        instance: ClientInstance,
        faults: BrokerFaults,
        settings: ProducerSettings,
        topics: Callable[[], Collection[str]],
    ) -> None:
        self._instance = instance
        self._faults = faults
        self._settings = settings
        self._topics = topics

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_PERIOD_S)
            await self.check()

    async def check(self) -> None:
        """Ask those whose time has come."""
        for broker_name in self._faults.due_for_check(self._settings.detect_interval_ms):
            address = self._instance.routes.master_of(broker_name)
            topic = next(iter(self._topics()), None)
            if address is not None and topic is not None and await self._answers(address, topic):
                self._faults.reached(broker_name)

    async def _answers(self, address: str, topic: str) -> bool:
        header = GetMaxOffsetRequest(topic=topic, queue_id=0)
        try:
            await self._instance.remoting.call(
                address,
                RequestCode.GET_MAX_OFFSET,
                header,
                timeout_s=self._settings.detect_timeout_ms / 1000,
            )
        except CometError as error:
            log.info("%s cannot be reached yet: %s", address, error)
            return False
        return True
