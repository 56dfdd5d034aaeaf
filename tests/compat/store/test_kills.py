"""One side is killed while it writes, and the other recovers the store: nothing acknowledged is lost."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cometmq.model.message import StoredMessage
from tests.compat.cluster import MakeNamesrv
from tests.compat.store.store_kit import (
    GROUP,
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
    LONGEST_LEVEL,
    burst,
    delayed,
    large_ones,
    singles,
)
from tests.compat.store.store_shell import Ack

PROJECT = Path(__file__).parents[3]
ACKS_BEFORE_KILL = 2_000
KILLS_AFTER = (1, 300, 1_500)
"""How many messages are acknowledged before each kill of a process of ours."""
SENDERS = 8
POURED = re.compile(r"poured (\d+) (x*)")


def plain(_: Path) -> dict[str, str]:
    return {}


def sealed_and_spread(home: Path) -> dict[str, str]:
    """Every record has a checksum of its own, which recovery insists on, and the log is in two folders."""
    folders = f"{home / 'log-a'},{home / 'log-b'}"
    return {"enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true", "storePathCommitLog": folders}


@pytest.fixture(params=[plain, sealed_and_spread], ids=lambda settings: settings.__name__)
def exchange(tmp_path: Path, make_namesrv: MakeNamesrv, request: pytest.FixtureRequest) -> Iterator[Exchange]:
    """A store that we wrote and left in order; Apache's broker does not run yet."""
    with running_exchange(tmp_path, make_namesrv, "broker-killed", request.param(tmp_path)) as exchange:
        next_id = unique_ids()
        exchange.put([*singles(next_id), *large_ones(next_id), *burst(next_id)])
        exchange.put([delayed(LONGEST_LEVEL, b"later", next_id())])
        assert all(list(folder.iterdir()) for folder in exchange.config.commit_log_folders)
        yield exchange


def test_we_recover_what_a_killed_apache_broker_acknowledged(exchange: Exchange) -> None:
    """B4, B5: killed while producers send to it, with synchronous flush."""
    exchange.start_apache()
    acks: list[Ack] = []
    for ack in exchange.shell.pour(BAZAAR, threads=SENDERS):
        acks.append(ack)
        if len(acks) == ACKS_BEFORE_KILL:
            exchange.broker.kill()
    assert len(acks) >= ACKS_BEFORE_KILL
    assert (exchange.config.root / "abort").exists()

    def look(visit: Visit) -> None:
        assert not visit.recovered.stopped_orderly
        seen = by_place(visit.read_all())
        ours = by_place(exchange.written)
        assert {place: seen.get(place) for place in ours} == ours
        assert_dense(seen.values())
        for ack in acks:
            message = seen[BAZAAR, ack.queue_id, ack.queue_offset]
            assert message.offset_msg_id == ack.offset_id
            assert_poured(message)
            assert visit.find_key(BAZAAR, message.keys[0]) == [message]

    exchange.visit(look)
    exchange.put(singles(unique_ids()))
    exchange.assert_sound()
    exchange.start_apache()
    assert_equal_on_both_sides(exchange, exchange.shell.read(GROUP, ALL_TOPICS))


def assert_poured(message: StoredMessage) -> None:
    """A message is one of those that the producer made."""
    found = POURED.fullmatch(message.body.decode())
    assert found is not None
    number = int(found[1])
    assert (message.keys, message.tags, len(found[2])) == ((f"pour-{number}",), "TagPour", number % 1000)


def test_apache_recovers_what_a_killed_process_of_ours_acknowledged(exchange: Exchange) -> None:
    """B4, B5: killed while several tasks write singles and batches, with synchronous flush.

    The first kills are followed by a recovery of our own, the last one by Apache's.
    """
    acknowledged = [message for acks in KILLS_AFTER for message in write_until_killed(exchange, acks)]
    assert len(acknowledged) >= sum(KILLS_AFTER)
    assert {message.topic for message in acknowledged} == {BAZAAR, BURST}
    assert (exchange.config.root / "abort").exists()

    exchange.start_apache()
    read = exchange.shell.read(GROUP, ALL_TOPICS)
    seen, expected = by_place(read), by_place([*exchange.written, *acknowledged])
    assert {place: seen.get(place) for place in expected} == expected

    singles = [message for message in acknowledged if message.topic == BAZAAR]
    for message in (*exchange.written[::500], *singles[-10:]):
        for key in message.keys[:1]:
            found = exchange.shell.find_key(message.topic, key)
            # Its recovery indexes again the record that was indexed last, so one of them is found twice.
            assert found in ([unnamed(message)], [unnamed(message)] * 2)
    assert_equal_on_both_sides(exchange, read)


def assert_equal_on_both_sides(exchange: Exchange, read: list[StoredMessage]) -> None:
    """Apache's broker, which runs, stops in good order, and we read what Apache's consumer has read."""
    exchange.broker.stop()
    exchange.assert_sound()
    seen = exchange.visit(Visit.read_all)
    assert by_place(seen) == by_place(read)
    assert_dense(seen)


def write_until_killed(exchange: Exchange, acks: int) -> list[StoredMessage]:
    """Let a process of ours write, and kill it; the answer is what it had acknowledged."""
    command = [sys.executable, "-m", "tests.compat.store.store_writer"]
    args = [msgspec.json.encode(exchange.settings).decode(), str(exchange.broker.port), exchange.broker.name]
    told: list[StoredMessage] = []
    with subprocess.Popen([*command, *args], cwd=PROJECT, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        try:
            for line in writer.stdout:
                told.append(msgspec.json.decode(line, type=StoredMessage))
                if len(told) == acks:
                    writer.kill()
        finally:
            writer.kill()
    return told
