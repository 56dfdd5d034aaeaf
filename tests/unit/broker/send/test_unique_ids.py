"""Ids of messages that came without one (B6)."""

from __future__ import annotations

from datetime import datetime

from cometmq.broker.send.unique_ids import UniqueIds
from cometmq.testing import VirtualClock
from tests.unique_ids import parse_unique_id


def test_ids_are_different_and_name_the_broker() -> None:
    """B6."""
    ids = UniqueIds("127.0.0.1", VirtualClock())
    made = [ids.next_id() for _ in range(1000)]
    assert len(set(made)) == 1000
    assert parse_unique_id(made[0]).ip == "127.0.0.1"


def test_a_new_month_begins_to_count_anew() -> None:
    """B6: also over the end of a year."""
    december = int(datetime(2026, 12, 31, 23, 59, 59).timestamp() * 1000)
    clock = VirtualClock(december)
    ids = UniqueIds("127.0.0.1", clock)
    assert parse_unique_id(ids.next_id()).month_ms == (31 * 24 * 3600 - 1) * 1000
    clock.advance(1500)
    assert parse_unique_id(ids.next_id()).month_ms == 500
