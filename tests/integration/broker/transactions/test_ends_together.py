"""Ends of transactions that arrive together: each is carried out and answered as if it came alone (B6)."""

from __future__ import annotations

import pytest

from cometmq.model.names import TRANS_OP_HALF_TOPIC
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import ONEWAY_FLAG, encode_command
from cometmq.wire.headers.send import EndTransactionRequest
from tests.integration.broker.broker_kit import BrokerKit, running_broker
from tests.integration.broker.message_types_kit import (
    COMMIT,
    GROUP,
    ROLLBACK,
    UNKNOWN,
    Half,
    half_of,
    transaction,
)
from tests.integration.broker.send.test_sends_together import send_together
from tests.waiting import eventually

QUIET = {"transactionCheckInterval": "600000", "transactionOpBatchInterval": "50"}
FAILED = ResponseCode.SYSTEM_ERROR


def end(number: int, half: Half, outcome: int, *, group: str = GROUP, flag: int = 0) -> bytes:
    header = EndTransactionRequest(
        producer_group=group,
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=half.commit_log_offset,
        commit_or_rollback=outcome,
        msg_id=half.unique_key,
    )
    return encode_command(RequestCode.END_TRANSACTION, number, flag, header)


async def halves(kit: BrokerKit, count: int) -> list[Half]:
    """Half messages for two topics in turn."""
    found: list[Half] = []
    for number in range(count):
        answer = await kit.send(
            ("Orders", "Bills")[number % 2],
            b"body-%d" % number,
            transaction(f"{number:032X}"),
            sys_flag=4,
        )
        found.append(half_of(answer))
    return found


def delivered(kit: BrokerKit) -> dict[str, list[bytes]]:
    return {topic: [bytes(each.body) for each in kit.stored(topic)] for topic in ("Orders", "Bills")}


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_ends_in_one_read_are_what_they_are_one_by_one(flush: str) -> None:
    """B6: whatever is among them, and also those that nobody waits for."""
    async with running_broker(settings={**QUIET, "flushDiskType": flush}) as kit:
        for topic in ("Orders", "Bills"):
            await kit.embedded.create_topic(topic, queues=4)
        known = await halves(kit, 12)
        nowhere = Half(3, known[3].commit_log_offset + 1, "")
        ends = [
            end(0, known[0], COMMIT),
            end(1, known[1], COMMIT),
            end(2, known[2], ROLLBACK),
            end(3, known[3], COMMIT, group="others"),
            end(4, known[0], COMMIT),
            end(5, known[0], ROLLBACK),
            end(6, known[2], COMMIT),
            end(7, known[4], UNKNOWN),
            end(8, known[5], 7),
            end(9, nowhere, COMMIT),
            end(10, known[6], COMMIT, flag=ONEWAY_FLAG),
            end(11, known[7], COMMIT),
        ]
        answers = await send_together(kit, b"".join(ends), 11)
        codes = {number: answer.code for number, answer in sorted(answers.items())}
        refused = dict.fromkeys((3, 5, 6, 8, 9), FAILED)
        assert codes == {**dict.fromkeys((0, 1, 2, 4, 7, 11), 0), **refused}
        assert answers[5].remark == "the transaction has ended already: COMMIT"
        assert delivered(kit) == {"Orders": [b"body-0", b"body-6"], "Bills": [b"body-1", b"body-7"]}
        for topic, committed in delivered(kit).items():
            for record, body in zip(kit.stored(topic), committed, strict=True):
                half = known[int(body.removeprefix(b"body-"))]
                assert (record.sys_flag & 0xC, record.prepared_transaction_offset) == (
                    COMMIT,
                    half.commit_log_offset,
                )
                found = kit.broker.context.store.index.find(topic, half.unique_key, 9, 0, 2**62)
                assert record.physical_offset in found.physical_offsets
        ending = kit.broker.context.transactions.ender
        assert (ending.committed, ending.rolled_back) == ({"Orders": 2, "Bills": 2}, {"Orders": 1})
        assert kit.broker.context.transactions.counts.total == 12 - 5

        def noted() -> set[bytes]:
            bodies = (bytes(each.body) for each in kit.stored(TRANS_OP_HALF_TOPIC))
            return {item for body in bodies for item in body.split(b",") if item}

        await eventually(lambda: noted() == {b"0", b"1", b"2", b"6", b"7"}, "the ends are noted")


async def test_commits_that_cannot_be_put_leave_their_transactions_open() -> None:
    """B5, B6: they succeed when there is room again."""
    async with running_broker(settings=QUIET) as kit:
        for topic in ("Orders", "Bills"):
            await kit.embedded.create_topic(topic, queues=4)
        known = await halves(kit, 4)
        data = b"".join(end(number, half, COMMIT) for number, half in enumerate(known))
        kit.broker.context.store.writer.open(is_open=False)
        answers = await send_together(kit, data, 4)
        assert {answer.code for answer in answers.values()} == {ResponseCode.SERVICE_NOT_AVAILABLE}
        assert kit.broker.context.transactions.counts.total == 4
        kit.broker.context.store.writer.open()
        answers = await send_together(kit, data, 4)
        assert {answer.code for answer in answers.values()} == {0}
        assert delivered(kit) == {"Orders": [b"body-0", b"body-2"], "Bills": [b"body-1", b"body-3"]}


async def test_under_synchronous_flush_a_commit_is_answered_when_it_is_on_the_disk() -> None:
    """B5, B6"""
    async with running_broker(settings={**QUIET, "flushDiskType": "SYNC_FLUSH"}) as kit:
        await kit.embedded.create_topic("Orders", queues=4)
        await kit.embedded.create_topic("Bills", queues=4)
        known = await halves(kit, 8)
        data = b"".join(end(number, half, COMMIT) for number, half in enumerate(known))
        answers = await send_together(kit, data, 8)
        assert {answer.code for answer in answers.values()} == {0}
        last = max(record.physical_offset for topic in ("Orders", "Bills") for record in kit.stored(topic))
        assert kit.broker.context.store.log.flushed_offset > last
