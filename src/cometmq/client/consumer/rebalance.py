"""Rebalancing: keeps the queues that this member of its group reads up to date.

Rules kept here:
- It runs every 20 seconds, and at once after a change, but at most once a second. While a topic is not
  settled, the next attempt follows after a second.
- All members of a group sort queues and client ids the same way and use the same strategy, so nobody has to
  hand out queues. A member that the broker does not list gets none.
- If the members of the group or the queues cannot be read, nothing changes.
- One change at a time: a topic that is unsubscribed during a rebalance is not added again.

What a rebalance listener hears:
- A queue is told once when it is assigned, before any of its messages is handed out, and once when it is
  revoked: no more of its messages are handed out then, but its offset and lock are still held. Only a lock
  that was lost to another client is told afterwards. A queue that is read anew, after a reset, is not told.
- Queues of the retry topic are not told.
- Plain methods run in a thread, coroutine methods on the event loop. Rebalancing waits for them, at most
  `rebalance_listener_timeout_ms`; an error is logged. Neither stops it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cometmq.client.consumer.broker_calls import BrokerCalls
from cometmq.client.consumer.listener import is_async
from cometmq.client.consumer.settings import ConsumerSettings
from cometmq.model.errors import CometError, SettingsError
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
        """Say once that a topic does not exist or cannot be read, and once when it can."""
        if topic.startswith(RETRY_PREFIX):
            return
        troubles, routes = self._instance.troubles, self._instance.routes
        if routes.subscribe_queues(topic):
            if troubles:
                troubles.over(_trouble(topic), f"topic {topic} is there now; group {self._group} reads it")
            return
        known = routes.known(topic)
        reason = (
            f"does not exist; check its name, or create it: cometmq topic create {topic}"
            if known is None or known.from_template
            else f"has no queue that can be read; allow it: cometmq topic update {topic} --perm rw"
        )
        text = f"topic {topic} {reason} (group {self._group} waits for it)"
        troubles.met(_trouble(topic), text, remind=False)

    async def leave(self, topic: str) -> None:
        """Give away the queues of an unsubscribed topic."""
        self._instance.troubles.forget(_trouble(topic))
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


class RebalanceListener:
    """Hears of the queues of a consumer; override what is needed, as a plain or a coroutine method."""

    def on_assigned(self, queues: Collection[MessageQueue]) -> Any:
        """These queues are read from now on; a pull consumer may seek here."""

    def on_revoked(self, queues: Collection[MessageQueue]) -> Any:
        """These queues are about to be given away; a pull consumer may commit here."""


class QueueChanges:
    """Tells a listener about the queues of one consumer."""

    def __init__(
        self,
        listener: RebalanceListener | None,
        plain: Callable[[MessageQueue], MessageQueue],
        timeout_s: float,
    ) -> None:
        if listener is not None and not isinstance(listener, RebalanceListener):
            raise SettingsError(
                f"rebalance_listener is {type(listener).__name__}; derive its class from RebalanceListener"
            )
        self._listener = listener
        self._plain = plain
        self._timeout_s = timeout_s
        self._told: set[MessageQueue] = set()

    def __bool__(self) -> bool:
        """Whether anybody listens."""
        return self._listener is not None

    async def assigned(self, queues: Iterable[MessageQueue]) -> None:
        """Tell of those that the listener does not know."""
        if self._listener is not None:
            new = {queue for queue in queues if not queue.topic.startswith(RETRY_PREFIX)} - self._told
            self._told |= new
            await self._tell(self._listener.on_assigned, new)

    async def revoked(self, queues: Iterable[MessageQueue]) -> None:
        """Tell of those that the listener knows."""
        if self._listener is not None:
            gone = self._told.intersection(queues)
            self._told -= gone
            await self._tell(self._listener.on_revoked, gone)

    async def _tell(
        self, method: Callable[[Collection[MessageQueue]], Any], queues: set[MessageQueue]
    ) -> None:
        if not queues:
            return
        said = sorted(map(self._plain, queues))
        try:
            async with asyncio.timeout(self._timeout_s):
                await (method(said) if is_async(method) else asyncio.to_thread(method, said))
        except TimeoutError:
            log.warning(
                "%s is not done with %d queue(s) after %g s; rebalancing goes on",
                method.__qualname__,
                len(said),
                self._timeout_s,
            )
        except Exception:
            log.exception("%s failed with %d queue(s); rebalancing goes on", method.__qualname__, len(said))


def _trouble(topic: str) -> str:
    return f"topic {topic}"


def _as_java_sorts(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
