"""Latency fault tolerance: how long a producer avoids brokers that were slow or failed.

Rules kept here:
- The slower the response, the longer the break; a failure counts as 10 seconds.
- Later responses only lengthen a break; it ends by itself.
- A broker that responded with an error is also *unreachable* until it responds well again or the detector
  reaches it. It is used only if no other broker is left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.client.producer.settings import ProducerSettings
from cometmq.model.errors import CometError
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.offset import GetMaxOffsetRequest

if TYPE_CHECKING:
    from cometmq.client.instance.instance import ClientInstance

log = logging.getLogger("cometmq.client")

LATENCIES_MS: Final = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)
BREAKS_MS: Final = (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)
FAILURE_LATENCY_MS: Final = 10_000
MAX_BROKERS: Final = 10_000
"""With this many brokers, a new one replaces the oldest."""
_PERIOD_S: Final = 3.0


def break_ms(latency_ms: float) -> int:
    """The break after a response that took this long."""
    for least, length in zip(reversed(LATENCIES_MS), reversed(BREAKS_MS), strict=True):
        if latency_ms >= least:
            return length
    return 0


class _Fault(msgspec.Struct):
    away_until_ms: float = 0.0
    reachable: bool = True
    check_at_ms: float = 0.0


class BrokerFaults:
    """The slow and failed brokers of one producer, by name."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._faults: dict[str, _Fault] = {}

    def answered(self, broker_name: str, latency_ms: float) -> None:
        """Note a response after this time."""
        fault = self._faults.get(broker_name)
        if fault is not None or latency_ms >= LATENCIES_MS[0]:
            self._note(broker_name, latency_ms, reachable=True)

    def failed(self, broker_name: str, *, reachable: bool) -> None:
        """Note a failure: the broker did not respond, or (not `reachable`) refused."""
        self._note(broker_name, FAILURE_LATENCY_MS, reachable=reachable)

    def _note(self, broker_name: str, latency_ms: float, *, reachable: bool) -> None:
        fault = self._faults.get(broker_name)
        if fault is None:
            if len(self._faults) >= MAX_BROKERS:
                del self._faults[next(iter(self._faults))]
            fault = self._faults[broker_name] = _Fault()
        length = break_ms(latency_ms)
        if length:
            fault.away_until_ms = max(fault.away_until_ms, self._now_ms() + length)
        fault.reachable = reachable

    def is_available(self, broker_name: str) -> bool:
        fault = self._faults.get(broker_name)
        return fault is None or self._now_ms() >= fault.away_until_ms

    def is_reachable(self, broker_name: str) -> bool:
        fault = self._faults.get(broker_name)
        return fault is None or fault.reachable

    def due_for_check(self, interval_ms: int) -> Iterable[str]:
        """The unreachable brokers that are due for a check, each once per interval."""
        now = self._now_ms()
        for broker_name, fault in list(self._faults.items()):
            if not fault.reachable and now >= fault.check_at_ms:
                fault.check_at_ms = now + interval_ms
                yield broker_name

    def reached(self, broker_name: str) -> None:
        """Note that the detector got a response."""
        fault = self._faults.get(broker_name)
        if fault is not None:
            fault.reachable = True


@dataclass(eq=False, repr=False)
class FaultDetector:
    """Sends a small request to unreachable brokers from time to time; any response counts."""

    _instance: ClientInstance
    _faults: BrokerFaults
    _settings: ProducerSettings
    _topics: Callable[[], Collection[str]]

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_PERIOD_S)
            await self.check()

    async def check(self) -> None:
        """Check the brokers that are due."""
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
