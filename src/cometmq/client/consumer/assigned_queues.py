"""Assigned queues of a push or pull consumer: added, locked, given away, reset.

Rules kept here:
- A queue is pulled only after its start offset was found and, if ordered, after it was locked. A failure is
  retried by the next rebalance.
- A queue that is given away is dropped first; its offset is persisted before it is unlocked.
- An ordered queue is free only when no listener has a message of it, or when its lock has expired anyway.
- The broker decides about locks. A lock counts here for half the time that the broker keeps it, so that two
  clients never consume with the same lock.
- A stop also unlocks queues that were locked, or were being locked, but never read: the broker would keep
  them from everybody for a minute.
- A lock that a broker denies is lost at once, with everything held of the queue. If the broker cannot be
  reached, a lock counts until it expires.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from cometmq.client.consumer.broker_calls import BrokerCalls
from cometmq.client.consumer.offset_store import OffsetStore, StartOffsets
from cometmq.client.consumer.process_queue import ProcessQueue
from cometmq.client.consumer.pull_loop import PullLoops
from cometmq.client.consumer.pull_request import PullRequests
from cometmq.client.consumer.rebalance import QueueChanges
from cometmq.client.instance.routes import Routes
from cometmq.model.errors import CometError
from cometmq.model.queue import MessageQueue

log = logging.getLogger("cometmq.client")

_LISTENER_GRACE_S: Final = 0.5
_UNLOCK_REGARDLESS_S: Final = 20.0


@dataclass(eq=False, repr=False)
class QueueLocks:
    """The queue locks of one ordered consumer."""

    _group: str
    _calls: BrokerCalls
    _routes: Routes
    _assigned: Mapping[MessageQueue, ProcessQueue]
    _lost: Callable[[ProcessQueue], None]
    _asked_for: set[MessageQueue] = field(default_factory=set, init=False)
    """Queues that the broker may have locked for this client; not all of them came to be assigned."""
    _requests: set[asyncio.Task[bool]] = field(default_factory=set, init=False)

    async def lock(self, queue: MessageQueue, pq: ProcessQueue) -> bool:
        """Lock one queue, or renew its lock."""
        self._asked_for.add(queue)
        request = asyncio.get_running_loop().create_task(self._lock(queue, pq))
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)
        return await asyncio.shield(request)  # a stop has to know the answer, or it leaves a lock behind

    async def _lock(self, queue: MessageQueue, pq: ProcessQueue) -> bool:
        try:
            locked = await self._calls.lock(self._group, self._routes.broker_of(queue), [queue])
        except CometError as error:
            log.warning("queue %s was not locked: %s", queue, error)
            return False
        if queue not in locked:
            self._asked_for.discard(queue)
        return self._note(pq, queue in locked)

    async def unlock_all(self) -> None:
        """Unlock every queue that the broker may have locked for this client."""
        if self._requests:
            await asyncio.wait(self._requests)
        await self.unlock(self._asked_for.union(self._assigned))

    async def renew_all(self) -> None:
        """Renew the locks of all assigned queues, and retry lost ones."""
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
        """Note the broker's decision about a lock; True if the lock counts."""
        was_ours = pq.locked
        if locked and not pq.lock_may_have_moved:
            pq.lock_renewed()
            return True
        pq.locked = False
        if was_ours:
            log.warning("the lock of queue %s was lost; it is taken anew", pq.queue)
            self._lost(pq)
        return False

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Unlock queues."""
        self._asked_for.difference_update(queues)
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


@dataclass(eq=False, repr=False)
class AssignedQueues:
    """The process queues of a consumer, by queue."""

    _offsets: OffsetStore
    _starts: StartOffsets
    _pulls: PullRequests
    _is_busy: Callable[[ProcessQueue], bool]
    _rebalance_soon: Callable[[], None]
    _changed: Callable[[], None]
    _changes: QueueChanges
    _leaving: Callable[[MessageQueue], None] = lambda queue: None
    """Called when a queue is given away, before its offset is persisted."""
    table: dict[MessageQueue, ProcessQueue] = field(default_factory=dict)
    loops: PullLoops = field(init=False)
    locks: QueueLocks | None = None
    """Set for ordered consumption in a cluster."""
    _lost: set[MessageQueue] = field(default_factory=set, init=False)
    """Queues whose lock another client has got, until the next rebalance."""

    async def apply(self, topic: str, wanted: set[MessageQueue]) -> bool:
        """Read exactly these queues of a topic; False if some have to wait."""
        given_away = [
            pq for queue, pq in self.table.items() if queue.topic == topic and self._must_go(pq, wanted)
        ]
        for pq in given_away:
            pq.drop()
            self.loops.end(pq)
        lost = {queue for queue in self._lost if queue.topic == topic}
        self._lost -= lost
        await self._changes.revoked(lost.union(pq.queue for pq in given_away if pq.queue not in wanted))
        removed = await asyncio.gather(*map(self.remove, given_away))
        added = await asyncio.gather(*map(self._add, sorted(wanted - self.table.keys())))
        if self._changes:
            await self._changes.assigned(pq.queue for pq, _ in filter(None, added))
            for pq, offset in filter(None, added):
                if not pq.dropped:  # unless the listener went to another offset
                    self.loops.begin(pq, offset)
        if any(removed) or any(added):
            self._changed()
        return all(removed) and all(added)

    def _must_go(self, pq: ProcessQueue, wanted: set[MessageQueue]) -> bool:
        if pq.queue not in wanted or pq.dropped:  # dropped: a listener was busy when the queue was given away
            return True
        if pq.pull_expired:
            log.error("queue %s was not pulled for long; it is taken anew", pq.queue)
        return pq.pull_expired

    async def _add(self, queue: MessageQueue) -> tuple[ProcessQueue, int] | None:
        """Add a queue, and pull it unless somebody hears of it first; None if it has to wait."""
        pq = ProcessQueue(queue)
        if self.locks is not None and not await self.locks.lock(queue, pq):
            return None  # its last owner still has it
        self._offsets.forget(queue)
        try:
            offset = await self._starts.of(queue)
        except CometError as error:
            log.warning("the start offset of %s was not found: %s", queue, error)
            if self.locks is not None:
                await self.locks.unlock([queue])
            return None
        self.table[queue] = pq
        log.info("reading %s from %d on", queue, offset)
        if not self._changes:
            self.loops.begin(pq, offset)
        return pq, offset

    async def remove(self, pq: ProcessQueue) -> bool:
        """Give a queue away; False if a listener still has a message of an ordered queue."""
        queue = pq.queue
        pq.drop()
        self.loops.end(pq)
        if self.locks is not None:
            await self._wait_for_listener(pq)
            if self._is_busy(pq) and time.monotonic() - pq.locked_at_s < _UNLOCK_REGARDLESS_S:
                return False
        self._leaving(queue)
        await self._offsets.persist([queue])
        self._forget(pq)
        if self.locks is not None:
            await self.locks.unlock([queue])
        return True

    async def _wait_for_listener(self, pq: ProcessQueue) -> None:
        deadline = time.monotonic() + _LISTENER_GRACE_S
        while self._is_busy(pq) and (left_s := deadline - time.monotonic()) > 0:
            await pq.wait_for_room(left_s)

    def _forget(self, pq: ProcessQueue) -> None:
        pq.released = True
        if self.table.get(pq.queue) is pq:
            del self.table[pq.queue]
            self._offsets.forget(pq.queue)
            self._pulls.forget(pq.queue)
        pq.clear()

    def lose(self, pq: ProcessQueue) -> None:
        """Drop a queue that another client has; its messages and offset here no longer count."""
        pq.drop()
        self.loops.end(pq)
        self._forget(pq)
        self._lost.add(pq.queue)
        self._rebalance_soon()

    async def correct(self, pq: ProcessQueue, offset: int) -> None:
        """Continue at another offset: the next rebalance adds the queue again with it."""
        pq.drop()
        self.loops.end(pq)
        if self.table.get(pq.queue) is pq:
            self._offsets.freeze(pq.queue, offset)
            await self._offsets.persist([pq.queue])
            self._forget(pq)
        self._rebalance_soon()

    def restart(self, pq: ProcessQueue, offset: int) -> None:
        """Read a queue from another offset; the messages held here are dropped."""
        queue = pq.queue
        pq.drop()
        self.loops.end(pq)
        if self.table.get(queue) is not pq:
            return
        fresh = self.table[queue] = ProcessQueue(queue)
        fresh.paused = pq.paused
        pq.released = True
        pq.clear()
        self.loops.begin(fresh, offset)

    async def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Continue at the offsets that an administrator set."""
        due = [(pq, offsets[queue]) for queue, pq in list(self.table.items()) if queue in offsets]
        await asyncio.gather(*(self.correct(pq, offset) for pq, offset in due))

    async def revoke_all(self) -> None:
        """Hand out nothing more, and tell the listener, while offsets and locks are still held."""
        for pq in self.table.values():
            pq.drop()
        await self._changes.revoked(self.table)

    async def give_all_away(self) -> None:
        """Stop reading: persist all offsets, then unlock the queues."""
        await self.revoke_all()
        queues = list(self.table)
        for queue in queues:
            self._leaving(queue)
        await self._offsets.persist(queues)
        if self.locks is not None:
            await self.locks.unlock_all()
        for pq in list(self.table.values()):
            self._forget(pq)
