"""A broker answers everybody within a moment, whatever one peer asks for (B7).

Each request here names as much as fits: queues, groups, topics, expressions, digits, brackets. While the
broker deals with it, a second connection asks for an offset again and again. The broker has a process of its
own, so that it does not share its time with the test.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cometmq.store.tables.tables import ConsumerFilterData, ConsumerFilterTable, TopicFilters
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.offset import UpdateConsumerOffsetRequest
from cometmq.wire.json.pretty import dumps_table
from cometmq.wire.record.batch import BatchItem, encode_batch
from cometmq.wire.record.properties import encode_properties
from tests.integration.broker.broker_kit import send_header
from tests.integration.broker.responsive_kit import (
    GROUP,
    INVALID,
    MANY,
    OK,
    PULLED,
    REQUESTS,
    TOPIC,
    WIDE,
    Besieged,
    Request,
    consumer,
    heartbeat,
    subscription,
    topic,
)
from tests.integration.broker.send.test_safety import start_broker

LONGEST_SILENCE_S = 1.0
TRIES = 3
"""The quietest of these counts: a busy machine is silent now and then by itself."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a broker listens that has topics with many queues and with many messages."""
    folder = tmp_path_factory.mktemp("store")
    child, address = start_broker(folder, "enablePropertyFilter=true", "maxIndexNum=2000000")
    try:
        asyncio.run(prepare(address))
        yield address
    finally:
        child.kill()
        child.communicate()


async def prepare(address: str) -> None:
    async with Besieged(address) as kit:
        for name, queues in ((TOPIC, 4), (WIDE, 65_536), (MANY, 1)):
            assert (await kit.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic(name, queues))).code == OK
        assert (await kit.ask(*heartbeat(consumer(GROUP, subscription(TOPIC))))).code == OK
        body = encode_batch([BatchItem(b"x", encode_properties({"a": "x", "KEYS": "same"}))] * 4_000)
        for _ in range(PULLED // 4_000):
            header = send_header(MANY, None, batch=True)
            assert (await kit.ask(RequestCode.SEND_BATCH_MESSAGE, header, body)).code == OK


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for child in started:
        child.kill()
        child.communicate()


@pytest.mark.parametrize(
    ("request_of", "code"), [each[1:] for each in REQUESTS], ids=[each[0] for each in REQUESTS]
)
async def test_others_are_answered_while_one_asks_too_much(
    address: str, request_of: Callable[[], Request], code: int
) -> None:
    """B7."""
    silences: list[float] = []
    async with Besieged(address) as kit:
        for _ in range(TRIES):
            request = request_of()
            answers: list[Command] = []

            async def attack(request: Request = request, answers: list[Command] = answers) -> None:
                answers.append(await kit.ask(*request))

            silences.append(await kit.silence_during(attack()))
            assert answers[0].code == code, answers[0].remark
            assert code == OK or answers[0].remark
            if silences[-1] < LONGEST_SILENCE_S:
                break
    assert min(silences) < LONGEST_SILENCE_S


async def test_a_flood_of_offsets_for_queues_that_are_not_there_is_refused(address: str) -> None:
    """B7: and others are answered meanwhile."""
    async with Besieged(address) as kit:

        async def commit(queue_id: int, offset: int = 5) -> int:
            header = UpdateConsumerOffsetRequest(
                consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, commit_offset=offset
            )
            return (await kit.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code

        async def flood() -> None:
            for first in range(4, 10_000, 500):
                assert {*await asyncio.gather(*map(commit, range(first, first + 500)))} == {INVALID}

        assert await kit.silence_during(flood()) < LONGEST_SILENCE_S
        assert await commit(-1) == INVALID
        assert await commit(0, offset=-7) == INVALID
        assert await commit(3) == OK


async def test_a_start_takes_no_longer_with_filters_that_take_long_to_compile(
    tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    """B7: what was saved before there were limits; what is over them is dropped, the rest compiled later."""
    groups = {
        f"g{number}": ConsumerFilterData(
            topic=TOPIC,
            consumer_group=f"g{number}",
            expression="a = " + "-" * (13_000 if number % 40 else 100_000) + "5",
            expression_type="SQL92",
            client_version=1,
        )
        for number in range(400)
    }
    (tmp_path / "config").mkdir()
    table = ConsumerFilterTable({TOPIC: TopicFilters(TOPIC, groups)})
    (tmp_path / "config" / "consumerFilter.json").write_bytes(dumps_table(table))
    began = time.monotonic()
    child, address = start_broker(tmp_path, "enablePropertyFilter=true")
    children.append(child)
    async with Besieged(address) as kit:
        assert (await kit.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic(TOPIC, 1))).code == OK
    assert time.monotonic() - began < 10.0, "a broker without filters takes one or two seconds"
