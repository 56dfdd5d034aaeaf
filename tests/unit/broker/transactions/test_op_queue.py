"""What is known about ended transactions, in memory and in the op topic."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cometmq.broker.config import BrokerConfig
from cometmq.broker.settings import Settings
from cometmq.broker.transactions import op_queue as ends_module
from cometmq.broker.transactions.op_queue import OpQueue, read_ends
from cometmq.model.message import Host
from cometmq.model.sysflag import TransactionType
from cometmq.store.message_store import MessageStore
from cometmq.store.put.writer import PutResult
from cometmq.store.status import PutStatus
from cometmq.testing.clock import VirtualClock
from cometmq.wire.record.codec import Record

COMMIT, ROLLBACK = TransactionType.COMMIT, TransactionType.ROLLBACK


class Store:
    """Takes what is put, or refuses it."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.status = PutStatus.PUT_OK

    def put(self, record: Record) -> PutResult:
        if self.status is PutStatus.PUT_OK:
            self.records.append(record)
        return PutResult(self.status)

    @property
    def bodies(self) -> list[bytes]:
        return [bytes(record.body) for record in self.records]


def make_ends(store: Store, **settings: Any) -> OpQueue:
    config = BrokerConfig(broker_name="a", **settings)
    host = Host("127.0.0.1", 10911)
    return OpQueue(Settings(config), VirtualClock(), host, cast(MessageStore, store))


async def test_ends_are_put_when_they_are_asked_for_and_can_be_read_again() -> None:
    """B6."""
    store = Store()
    ends = make_ends(store)
    for offset in (3, 14, 159):
        ends.end(0, offset, COMMIT)
    ends.end(2, 7, ROLLBACK)
    assert store.records == []
    ends.write_all()
    assert {(record.queue_id, bytes(record.body)) for record in store.records} == {
        (0, b"3,14,159,"),
        (2, b"7,"),
    }
    assert [list(read_ends(record)) for record in store.records] == [[3, 14, 159], [7]]
    ends.stop()


async def test_ends_that_could_not_be_put_are_put_later() -> None:
    """B6: and none is accepted while too many wait."""
    store = Store()
    store.status = PutStatus.SERVICE_NOT_AVAILABLE
    ends = make_ends(store, transaction_op_msg_max_size=4)
    for offset in range(3):
        ends.end(0, offset, COMMIT)
    assert not ends.is_full
    for offset in range(3, ends_module.MOST_UNWRITTEN):
        ends.end(0, offset, COMMIT)
    assert ends.is_full
    store.status = PutStatus.PUT_OK
    ends.write_all()
    assert not ends.is_full
    assert [end for record in store.records for end in read_ends(record)] == list(
        range(ends_module.MOST_UNWRITTEN)
    )
    ends.stop()
    assert ends.is_full


async def test_the_end_of_one_copy_is_the_end_of_all() -> None:
    """B6: whichever of them is named, and the newest one is in the op topic, too."""
    store = Store()
    ends = make_ends(store)
    ends.copied(0, 1, 5)
    ends.copied(0, 5, 9)
    ends.end(0, 1, ROLLBACK)
    assert [ends.outcome(0, offset) for offset in (1, 5, 9, 2)] == [ROLLBACK, ROLLBACK, ROLLBACK, None]
    ends.stop()
    assert store.bodies == [b"1,9,"]


async def test_only_so_many_ends_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are forgotten are in the op topic."""
    monkeypatch.setattr(ends_module, "REMEMBERED", 3)
    store = Store()
    ends = make_ends(store)
    for offset in range(8):
        ends.end(0, offset, COMMIT)
    assert [ends.outcome(0, offset) is not None for offset in range(8)] == [False] * 3 + [True] * 5
    ends.stop()
    assert store.bodies == [b"0,1,2,3,4,5,6,7,"]


async def test_a_half_message_that_stands_elsewhere_is_put_like_an_end_and_is_none() -> None:
    """B6: its transaction is still open, and may end either way."""
    store = Store()
    ends = make_ends(store)
    ends.moved(0, 5)
    assert ends.outcome(0, 5) is None
    assert ends.outcome(0, 5) is None
    ends.write(0)
    assert store.bodies == [b"5,"]
    ends.stop()


async def test_whoever_wants_to_know_hears_of_each_end() -> None:
    ends = make_ends(Store())
    heard: list[tuple[int, int]] = []
    ends.on_end = lambda queue_id, offset: heard.append((queue_id, offset))
    ends.copied(0, 1, 4)
    ends.end(0, 1, COMMIT)
    assert heard == [(0, 1), (0, 4)]
    ends.stop()


@pytest.mark.parametrize(("block", "body"), [(b"TAGS\x01x\x02", b"1,2,"), (b"TAGS\x01d\x02", b",,x,-1,")])
def test_what_is_no_end_is_passed_over(block: bytes, body: bytes) -> None:
    assert list(read_ends(Record("op", body, block))) == []
