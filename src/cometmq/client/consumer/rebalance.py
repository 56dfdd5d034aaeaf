"""Rebalancing: keeps the queues that this member of its group reads up to date.

Rules kept here:
- It runs every 20 seconds, and at once after a change, but at most once a second. While a topic is not
  settled, the next attempt follows after a second.
- All members of a group sort queues and client ids the same way and use the same strategy, so nobody has to
  hand out queues. A member that the broker does not list gets none.
- If the members of the group or the queues cannot be read, nothing changes.
- One change at a time: a topic that is unsubscribed during a rebalance is not added again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cometmq.client.consumer.broker_calls import BrokerCalls
from cometmq.client.consumer.settings import ConsumerSettings
from cometmq.model.errors import CometError
from cometmq.model.names import RETRY_PREFIX
from cometmq.model.queue import MessageQueue

if TYPE_CHECKING:
    from cometmq.client.instance.instance import ClientInstance

log = logging.getLogger("cometmq.client")

Apply = Callable[[str, set[MessageQueue]], Awaitable[bool]]
"""Sets the queues of a topic that this member reads; False if that is not settled yet."""


@dataclass(eq=False, repr=False)
class Rebalancer:
    """Rebalances one consumer."""

    _instance: ClientInstance
    _calls: BrokerCalls
    _group: str
    _settings: ConsumerSettings
    _topics: Callable[[], Collection[str]]
    _apply: Apply
    _wanted: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _suspended: bool = field(default=False, init=False)

    def trigger(self) -> None:
        """Rebalance soon."""
        self._wanted.set()

    def suspend(self) -> None:
        """Change nothing for now."""
        self._suspended = True

    def resume(self) -> None:
        self._suspended = False
        self.trigger()

    async def run(self) -> None:
        """Rebalance until cancelled."""
        settings = self._settings
        while True:
            self._wanted.clear()
            settled = self._suspended or await self.rebalance()
            await asyncio.sleep(settings.min_rebalance_interval_ms / 1000)
            if settled:
                left_ms = settings.rebalance_interval_ms - settings.min_rebalance_interval_ms
                try:
                    async with asyncio.timeout(max(left_ms, 0) / 1000):
                        await self._wanted.wait()
                except TimeoutError:
                    pass

    async def rebalance(self) -> bool:
        """Allocate the queues of every topic; True if all is settled."""
        settled = True
        troubles = self._instance.troubles
        for topic in list(self._topics()):
            try:
                settled &= await self._settle(topic)
                self._say_whether_it_exists(topic)
            except CometError as error:
                troubles.met("rebalance", f"queues stay as they are, e.g. those of topic {topic}: {error}")
                settled = False
            except Exception:
                log.exception("rebalancing topic %s failed", topic)
                settled = False
        if settled and troubles:
            troubles.over("rebalance", "queues are shared out again")
        return settled

    def _say_whether_it_exists(self, topic: str) -> None:
        """Say that a topic does not exist, and when it does."""
        if topic.startswith(RETRY_PREFIX):
            return
        troubles, what = self._instance.troubles, f"topic {topic}"
        if not self._instance.routes.subscribe_queues(topic):
            troubles.met(
                what, f"topic {topic} does not exist yet, or cannot be read; group {self._group} waits for it"
            )
        elif troubles:
            troubles.over(what, f"topic {topic} is there now")

    async def leave(self, topic: str) -> None:
        """Give away the queues of an unsubscribed topic."""
        async with self._changing:
            await self._apply(topic, set())

    async def _settle(self, topic: str) -> bool:
        queues = await self._queues_of(topic)
        async with self._changing:
            if topic not in self._topics():
                return True
            return await self._apply(topic, queues) and self._exists(topic)

    def _exists(self, topic: str) -> bool:
        """Whether a topic exists. Only the retry topic is waited for: brokers create it for every group."""
        return not topic.startswith(RETRY_PREFIX) or bool(self._instance.routes.subscribe_queues(topic))

    async def _queues_of(self, topic: str) -> set[MessageQueue]:
        routes = self._instance.routes
        await routes.of(topic)
        queues = sorted(routes.subscribe_queues(topic))
        if self._settings.broadcasting:
            return set(queues)
        if not queues:
            return set()  # a topic that does not exist yet
        client_ids = sorted(await self._calls.consumer_ids(self._group, topic), key=_as_java_sorts)
        strategy = self._settings.strategy
        return set(strategy.allocate(self._group, self._instance.client_id, queues, client_ids))


def _as_java_sorts(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
