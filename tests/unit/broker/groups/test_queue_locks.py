"""Locks of queues: who has one, for how long, and how many there may be."""

from __future__ import annotations

import pytest

from cometmq.broker.groups import queue_locks as locks_module
from cometmq.broker.groups.queue_locks import LOCK_MS, QueueLocks
from cometmq.model.queue import MessageQueue
from cometmq.testing.clock import VirtualClock

QUEUES = [MessageQueue("Orders", "broker-a", queue_id) for queue_id in range(3)]


def test_renewing_keeps_a_lock_from_lapsing() -> None:
    clock = VirtualClock()
    locks = QueueLocks(clock)
    assert locks.lock("g", "first", QUEUES) == QUEUES
    clock.advance(LOCK_MS)
    assert locks.lock("g", "first", QUEUES[:1]) == QUEUES[:1]
    clock.advance(1)
    assert locks.lock("g", "second", QUEUES) == QUEUES[1:]


def test_groups_do_not_share_locks() -> None:
    locks = QueueLocks(VirtualClock())
    assert locks.lock("g", "first", QUEUES) == QUEUES
    assert locks.lock("h", "second", QUEUES) == QUEUES


def test_nobody_gives_up_the_lock_of_another() -> None:
    locks = QueueLocks(VirtualClock())
    locks.lock("g", "first", QUEUES)
    locks.unlock("g", "second", QUEUES)
    locks.unlock("nobody", "second", QUEUES)
    assert locks.lock("g", "second", QUEUES) == []


def test_a_group_has_locks_until_they_lapse_or_are_given_up() -> None:
    clock = VirtualClock()
    locks = QueueLocks(clock)
    assert not locks.has_locks("g")
    locks.lock("g", "first", QUEUES)
    assert locks.has_locks("g")
    locks.unlock("g", "first", QUEUES[:2])
    assert locks.has_locks("g")
    clock.advance(LOCK_MS + 1)
    assert not locks.has_locks("g")


def test_lapsed_locks_are_forgotten() -> None:
    clock = VirtualClock()
    locks = QueueLocks(clock)
    locks.lock("g", "first", QUEUES)
    clock.advance(LOCK_MS)
    locks.lock("g", "first", QUEUES[:1])
    clock.advance(1)
    locks.remove_expired()
    assert len(locks) == 1


def test_there_are_only_so_many_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks_module, "MAX_LOCKS", 2)
    locks = QueueLocks(VirtualClock())
    assert locks.lock("g", "first", QUEUES) == QUEUES[:2]
    locks.unlock("g", "first", QUEUES[:1])
    assert locks.lock("h", "second", QUEUES[2:]) == QUEUES[2:]
