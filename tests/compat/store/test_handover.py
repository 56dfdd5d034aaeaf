"""A store that we wrote goes to Apache's broker, which reads it and adds to it, and comes back to us.

The tests are in the order of these events: the last ones stop the broker.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cometmq.model import message_properties as names
from cometmq.model.message import StoredMessage
from cometmq.ports.clock import SystemClock
from cometmq.store.tables.tables import ConsumerOffsetTable, SubscriptionGroupTable, TopicTable
from cometmq.wire.record.codec import Record
from tests.compat.cluster import MakeNamesrv
from tests.compat.store.store_kit import (
    GROUP,
    PROGRESS,
    Exchange,
    Visit,
    assert_dense,
    by_place,
    running_exchange,
    unique_ids,
    unnamed,
)
from tests.compat.store.store_messages import (
    ALL_TOPICS,
    BAZAAR,
    BURST,
    LATE,
    LONG_RETRY,
    LONGEST_LEVEL,
    QUEUES,
    SHARED_KEY,
    NextId,
    burst,
    delayed,
    large_ones,
    singles,
    timed,
)
from tests.waiting import wait_until

SHORT_LEVEL = 1
"""A delay of a second."""
DELIVERY_SECONDS = 20


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory, make_namesrv: MakeNamesrv) -> Iterator[Exchange]:
    """Apache's broker runs on a store that we wrote, and has delivered the two messages that were due."""
    with running_exchange(tmp_path_factory.mktemp("handover"), make_namesrv, "broker-handover") as exchange:
        next_id = unique_ids()
        exchange.put(singles(next_id))
        exchange.put(large_ones(next_id))
        exchange.put(burst(next_id))
        exchange.put(waiting_messages(next_id))
        exchange.assert_sound()
        exchange.start_apache()
        wait_until(
            lambda: len(exchange.shell.read(GROUP, [LATE])) == 2,
            seconds=DELIVERY_SECONDS,
            what="Apache delivered what was due",
        )
        yield exchange


def waiting_messages(next_id: NextId) -> Iterator[Record]:
    """Two to be delivered soon, two that wait for long."""
    now_ms = SystemClock().now_ms()
    yield delayed(SHORT_LEVEL, b"soon", next_id())
    yield delayed(LONGEST_LEVEL, b"later", next_id())
    yield timed(now_ms + 1000, b"in a second", next_id())
    yield timed(now_ms + 3_600_000, b"in an hour", next_id())


@pytest.fixture(scope="module")
def read(exchange: Exchange) -> list[StoredMessage]:
    """What Apache's consumer reads of it."""
    return exchange.shell.read(GROUP, ALL_TOPICS)


def one(messages: list[StoredMessage], topic: str, key: str) -> StoredMessage:
    (found,) = (message for message in messages if message.topic == topic and key in message.keys)
    return found


def test_the_store_that_we_wrote_has_several_files_of_each_kind(exchange: Exchange) -> None:
    """B4"""
    root = exchange.config.root
    assert len(list((root / "commitlog").iterdir())) >= 3
    assert len(list((root / "consumequeue" / BURST / "0").iterdir())) >= 2
    assert len(list((root / "index").iterdir())) >= 2


def test_apache_reads_every_message_that_we_wrote(exchange: Exchange, read: list[StoredMessage]) -> None:
    """B4: every field and every property is equal, and nothing else is there but what was delivered."""
    ours, theirs = by_place(exchange.written), by_place(read)
    assert theirs.keys() - ours.keys() == {(LATE, 0, 0), (LATE, 1, 0)}
    assert {place: theirs[place] for place in ours} == ours
    assert_dense(read)


@pytest.mark.parametrize(("body", "queue_id", "wait_ms"), [(b"soon", 0, 1000), (b"in a second", 1, 0)])
def test_apache_delivers_a_waiting_message_that_we_stored(
    exchange: Exchange, read: list[StoredMessage], body: bytes, queue_id: int, wait_ms: int
) -> None:
    """B4, B7: by delay level, where the queue unit tells it when, and at a point in time."""
    (waiting,) = (message for message in exchange.written if message.body == body)
    delivered = by_place(read)[LATE, queue_id, 0]
    assert (delivered.body, delivered.tags, delivered.msg_id) == (body, waiting.tags, waiting.msg_id)
    assert delivered.store_timestamp_ms >= waiting.store_timestamp_ms + wait_ms


def test_apache_finds_our_messages_by_key(exchange: Exchange) -> None:
    """B10"""
    for key in ("first", "second", "third", "鍵", "committed", "large-0", "large-499"):
        assert exchange.shell.find_key(BAZAAR, key) == [unnamed(one(exchange.written, BAZAAR, key))]
    shared = f"{SHARED_KEY}-3"
    expected = [unnamed(message) for message in exchange.written if shared in message.keys]
    found = exchange.shell.find_key(BAZAAR, shared)
    assert len(expected) == 50
    assert sorted(found, key=place_in_log) == expected
    assert exchange.shell.find_key(LONG_RETRY, "retried") == [
        unnamed(one(exchange.written, LONG_RETRY, "retried"))
    ]
    assert exchange.shell.find_key(BURST, "burst-3199") == [
        unnamed(one(exchange.written, BURST, "burst-3199"))
    ]


def test_apache_finds_our_messages_by_unique_id(exchange: Exchange) -> None:
    """B10"""
    wanted = [one(exchange.written, BAZAAR, key) for key in ("first", "packed-LZ4", "large-250")]
    found = exchange.shell.find_unique(BAZAAR, *(message.msg_id for message in wanted))
    assert found == [unnamed(message) for message in wanted]


def test_apache_finds_our_messages_by_offset_id(exchange: Exchange) -> None:
    """B10"""
    wanted = [message for message in exchange.written if message.topic == BAZAAR][::40]
    found = exchange.shell.at_place(BAZAAR, *(message.offset_msg_id for message in wanted))
    assert found == [unnamed(message) for message in wanted]


def test_apache_takes_up_where_the_group_was(exchange: Exchange) -> None:
    """B5: consumer offsets come from the file that we wrote."""
    assert exchange.shell.progress(GROUP, BAZAAR) == list(PROGRESS.values())


@pytest.fixture(scope="module")
def returned(exchange: Exchange) -> list[StoredMessage]:
    """Apache's producer has added to the store, its consumer read all of it, and the broker was stopped."""
    acks = exchange.shell.send(BAZAAR)
    read: list[StoredMessage] = []

    def is_complete() -> bool:
        read[:] = exchange.shell.read(GROUP, ALL_TOPICS)
        return len(read) >= len(exchange.written) + 2 + len(acks)

    # Apache's broker acknowledges a message before its queue knows of it.
    wait_until(is_complete, seconds=DELIVERY_SECONDS, what="what was sent is in its queues")
    # The queue of an acknowledgement is the one that was asked for, even if the message is delayed elsewhere.
    places = {(message.queue_offset, message.offset_msg_id) for message in read}
    assert {(ack.queue_offset, ack.offset_id) for ack in acks} <= places
    assert len(read) == len(exchange.written) + 2 + len(acks)
    exchange.broker.stop()
    return read


def test_what_apache_added_comes_back_to_us_with_all_the_rest(
    exchange: Exchange, returned: list[StoredMessage]
) -> None:
    """B4, B5: after an orderly stop of Apache's broker we read every message just as its consumer did."""
    exchange.assert_sound()

    def look(visit: Visit) -> None:
        assert visit.recovered.stopped_orderly
        seen = visit.read_all()
        assert by_place(seen) == by_place(returned)
        assert_dense(seen)

    exchange.visit(look)
    exchange.assert_sound()


def test_we_find_what_apache_indexed(exchange: Exchange, returned: list[StoredMessage]) -> None:
    """B10: by place, by key and by unique id."""

    def look(visit: Visit) -> None:
        for message in returned:
            assert visit.at_place(message.commit_log_offset) == message
            for key in message.keys:
                assert message in visit.find_key(message.topic, key)
            if names.UNIQ_KEY in message.properties:
                assert message in visit.find_key(message.topic, message.msg_id, unique=True)

    exchange.visit(look)


@pytest.mark.usefixtures("returned")
def test_the_tables_of_the_broker_come_back_to_us(exchange: Exchange) -> None:
    """B5: what we wrote is still in the files after Apache's broker wrote them again."""
    topics = exchange.load_config(TopicTable).topic_config_table
    assert {name: topics[name].write_queue_nums for name in QUEUES} == QUEUES
    assert set(exchange.load_config(SubscriptionGroupTable).subscription_group_table) >= {GROUP}
    assert exchange.load_config(ConsumerOffsetTable).offset_table[f"{BAZAAR}@{GROUP}"] == PROGRESS


def place_in_log(message: StoredMessage) -> int:
    return message.commit_log_offset
