"""Locks of queues whose messages are consumed in order: one member of the group has a queue at a time.

Rules kept here:
- The broker decides. A lock counts here for half the time that the broker keeps it, so that nobody consumes
  with a lock that somebody else may have got meanwhile.
- A lock that a broker denies is lost at once, and with it everything that is held of the queue: somebody else
  goes on there. One about which the broker says nothing, because it cannot be reached, counts until its time
  is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from cometmq.client.consumer.broker_calls import QueueCalls
from cometmq.client.consumer.process_queue import ProcessQueue
from cometmq.client.instance.routes import Routes
from cometmq.model.errors import CometError
from cometmq.model.queue import MessageQueue

log = logging.getLogger("cometmq.client")


class QueueLocks:
    """The locks of one consumer."""

    def __init__(
        self,
        group: str,
        calls: QueueCalls,
        routes: Routes,
        assigned: Mapping[MessageQueue, ProcessQueue],
        lost: Callable[[ProcessQueue], None],
    ) -> None:
        self._group = group
        self._calls = calls
        self._routes = routes
        self._assigned = assigned
        self._lost = lost

    async def lock(self, queue: MessageQueue, pq: ProcessQueue) -> bool:
        """Lock one queue, or renew its lock."""
        try:
            locked = await self._calls.lock(self._group, self._routes.broker_of(queue), [queue])
        except CometError as error:
            log.warning("queue %s was not locked: %s", queue, error)
            return False
        return self._note(pq, queue in locked)

    async def renew_all(self) -> None:
        """Renew the locks of all queues at hand, and try those that were lost."""
        by_broker = self._by_broker(queue for queue, pq in self._assigned.items() if not pq.dropped)
        await asyncio.gather(*(self._renew(broker, queues) for broker, queues in by_broker.items()))

    async def _renew(self, broker_name: str, queues: Collection[MessageQueue]) -> None:
        try:
            locked = await self._calls.lock(self._group, broker_name, queues)
        except CometError as error:
            log.warning(
                "the locks of %d queue(s) of %s were not renewed: %s", len(queues), broker_name, error
            )
            return
        for queue in queues:
            pq = self._assigned.get(queue)
            if pq is not None:
                self._note(pq, queue in locked)

    def _note(self, pq: ProcessQueue, locked: bool) -> bool:
        """What a broker said about a lock; True if it counts."""
        was_ours = pq.locked
        if locked and not pq.lock_may_have_moved:
            pq.lock_renewed()
            return True
        pq.locked = False
        if was_ours:
            log.warning("the lock of queue %s was lost; it is taken anew", pq.queue)
            self._lost(pq)
        return False

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Give locks back."""
        for broker_name, owned in self._by_broker(queues).items():
            try:
                await self._calls.unlock(self._group, broker_name, owned)
            except CometError as error:
                log.warning("%d queue(s) of %s were not unlocked: %s", len(owned), broker_name, error)

    def _by_broker(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        found: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            found.setdefault(self._routes.broker_of(queue), []).append(queue)
        return found
