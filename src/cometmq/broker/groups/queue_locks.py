"""Locks of queues: which client of a group may consume a queue in order.

Rules kept here:
- A lock belongs to a group, a queue and a client, and lapses when it was not renewed for a minute; whoever
  comes first after that has it.
- A client gets, in one answer, all queues that are its own from now on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

import msgspec

from cometmq.model.queue import MessageQueue
from cometmq.ports.clock import Clock

log = logging.getLogger("cometmq.broker")

LOCK_MS: Final = 60_000
"""How long a lock lasts that nobody renews."""
MAX_LOCKS: Final = 1_000_000
"""With this many locks in all, queues that nobody had locked yet are not locked."""


class _Lock(msgspec.Struct):
    client_id: str
    renewed_ms: int


class QueueLocks:
    """All locks of a broker; belongs to the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Lock queues for a client, or renew its locks; returns the queues that it has now."""
        now = self._clock.monotonic_ms()
        locks = self._groups.setdefault(group, {})
        locked = [queue for queue in queues if self._lock_one(group, locks, client_id, queue, now)]
        if not locks:
            del self._groups[group]
        return locked

    def _lock_one(
        self, group: str, locks: dict[MessageQueue, _Lock], client_id: str, queue: MessageQueue, now: int
    ) -> bool:
        lock = locks.get(queue)
        if lock is None:
            if self._count >= MAX_LOCKS:
                log.warning("%s does not get %s for %s: there are too many locks", client_id, queue, group)
                return False
            locks[queue] = _Lock(client_id, now)
            self._count += 1
            return True
        if lock.client_id != client_id:
            if now - lock.renewed_ms <= LOCK_MS:
                return False
            log.info("%s takes %s of %s over from %s", client_id, queue, group, lock.client_id)
            lock.client_id = client_id
        lock.renewed_ms = now
        return True

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give up the locks that a client has; those of others stay."""
        locks = self._groups.get(group)
        if locks is None:
            return
        strange: list[MessageQueue] = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or lock.client_id != client_id:
                strange.append(queue)
                continue
            del locks[queue]
            self._count -= 1
        if strange:
            log.warning(
                "%s unlocks %d queues of %s that it has not locked, the first is %s",
                *(client_id, len(strange), group, strange[0]),
            )
        if not locks:
            del self._groups[group]

    def has_locks(self, group: str) -> bool:
        """Whether anybody consumes a queue of this group in order."""
        locks = self._groups.get(group)
        if not locks:
            return False
        oldest = self._clock.monotonic_ms() - LOCK_MS
        return any(lock.renewed_ms >= oldest for lock in locks.values())

    def remove_expired(self) -> None:
        """Forget the locks that lapsed."""
        oldest = self._clock.monotonic_ms() - LOCK_MS
        for group, locks in list(self._groups.items()):
            for queue, lock in list(locks.items()):
                if lock.renewed_ms < oldest:
                    del locks[queue]
                    self._count -= 1
            if not locks:
                del self._groups[group]
