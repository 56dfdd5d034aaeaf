"""What is known of transactions, and the questions about them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from cometmq.client.blocking.producer import TransactionProducer as BlockingProducer
from cometmq.client.producer import transactions
from cometmq.client.producer.transactions import (
    CheckBack,
    CheckBacks,
    Decisions,
    OpenTransaction,
    TransactionProducer,
    TransactionState,
    check_transactional,
)
from cometmq.model.errors import MessageError, SettingsError, TooManyRequestsError
from cometmq.model.message import Host, Message, StoredMessage
from cometmq.wire.headers.send import CheckTransactionStateRequest
from tests.waiting import eventually

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


def check_back(msg_id: str) -> CheckBack:
    message = StoredMessage(
        topic="orders",
        body=b"x",
        properties={"UNIQ_KEY": msg_id},
        broker_name="a",
        queue_id=0,
        queue_offset=0,
        commit_log_offset=0,
        store_size=0,
        body_crc=0,
        flag=0,
        sys_flag=0,
        born_timestamp_ms=0,
        born_host=Host("127.0.0.1", 1),
        store_timestamp_ms=0,
        store_host=Host("127.0.0.1", 1),
        reconsume_times=0,
        prepared_transaction_offset=0,
        offset_msg_id="",
    )
    header = CheckTransactionStateRequest(tran_state_table_offset=1, commit_log_offset=2)
    return CheckBack("127.0.0.1:10911", header, message)


class Answers:
    """Remembers what brokers are told."""

    def __init__(self) -> None:
        self.told: dict[str, TransactionState] = {}

    async def __call__(self, check_back: CheckBack, state: TransactionState) -> None:
        self.told[check_back.message.msg_id] = state

    async def reach(self, count: int) -> dict[str, TransactionState]:
        await eventually(lambda: len(self.told) >= count, f"{count} brokers are told", seconds=5)
        return self.told


def test_an_open_transaction_is_unknown_and_an_ended_one_known() -> None:
    decisions = Decisions()
    assert decisions.known("a") is None
    decisions.begin("a")
    assert decisions.known("a") is UNKNOWN
    decisions.end("a", ROLLBACK)
    assert decisions.known("a") is ROLLBACK


def test_what_was_left_undecided_is_for_the_check_to_find_out() -> None:
    decisions = Decisions()
    decisions.begin("a")
    decisions.end("a", UNKNOWN)
    assert decisions.known("a") is None


def test_only_so_many_are_open_and_so_many_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MAX_OPEN", 2)
    monkeypatch.setattr(transactions, "MAX_REMEMBERED", 2)
    decisions = Decisions()
    for name in "abc":
        decisions.check_room()
        decisions.begin(name)
        decisions.end(name, COMMIT)
    assert [decisions.known(name) for name in "abc"] == [None, COMMIT, COMMIT]
    decisions.begin("d")
    decisions.begin("e")
    with pytest.raises(TooManyRequestsError, match="2 transactions are open"):
        decisions.check_room()


@pytest.mark.parametrize(
    "fields", [{"delay_level": 3}, {"delay_ms": 5}, {"deliver_at_ms": 1_700_000_000_000}]
)
def test_a_delayed_message_cannot_be_in_a_transaction(fields: dict[str, Any]) -> None:
    with pytest.raises(MessageError, match="cannot be delayed"):
        check_transactional(Message("orders", b"x", **fields))


async def test_a_plain_check_runs_on_a_thread_of_its_own() -> None:
    """C6."""
    answers, threads = Answers(), set()

    def check(message: StoredMessage) -> TransactionState:
        threads.add(threading.current_thread().name)
        return COMMIT

    checks = CheckBacks("shop", check, 1, answers)
    checks.submit(check_back("a"))
    assert await answers.reach(1) == {"a": COMMIT}
    assert threads == {"shop-check_0"}
    await checks.stop(1.0)


async def test_a_check_may_be_a_coroutine_function() -> None:
    answers = Answers()

    async def check(message: StoredMessage) -> TransactionState:
        return ROLLBACK

    checks = CheckBacks("shop", check, 1, answers)
    checks.submit(check_back("a"))
    assert await answers.reach(1) == {"a": ROLLBACK}
    await checks.stop(1.0)


async def test_a_check_that_fails_or_says_nothing_leaves_it_open() -> None:
    answers = Answers()

    def check(message: StoredMessage) -> TransactionState | None:
        if message.msg_id == "fails":
            raise ValueError("database away")
        return None

    checks = CheckBacks("shop", check, 2, answers)
    checks.submit(check_back("fails"))
    checks.submit(check_back("nothing"))
    assert await answers.reach(2) == {"fails": UNKNOWN, "nothing": UNKNOWN}
    await checks.stop(1.0)


async def test_with_too_many_questions_waiting_a_further_one_is_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transactions, "MAX_WAITING", 2)
    answers, gate = Answers(), asyncio.Event()

    async def check(message: StoredMessage) -> TransactionState:
        await gate.wait()
        return COMMIT

    checks = CheckBacks("shop", check, 1, answers)
    for name in "abc":
        checks.submit(check_back(name))
    gate.set()
    assert set(await answers.reach(2)) == {"a", "b"}
    assert "a further one is dropped" in caplog.text
    await asyncio.sleep(0)
    checks.submit(check_back("d"))
    assert set(await answers.reach(3)) == {"a", "b", "d"}
    await checks.stop(1.0)


class Listener:
    """A listener of plain functions."""

    def execute(self, transaction: OpenTransaction, arg: object) -> TransactionState:
        return COMMIT

    def check(self, message: StoredMessage) -> TransactionState:
        return COMMIT


class AsyncListener(Listener):
    """A listener whose local transaction has to be awaited."""

    async def execute(self, transaction: OpenTransaction, arg: object) -> TransactionState:  # type: ignore[override]
        return COMMIT


@pytest.mark.parametrize("kind", [TransactionProducer, BlockingProducer])
def test_a_producer_has_one_check(kind: Any) -> None:
    with pytest.raises(SettingsError, match="give the producer a check"):
        kind("shop")
    with pytest.raises(SettingsError, match="not both"):
        kind("shop", check=Listener().check, listener=Listener())
    with pytest.raises(SettingsError, match="check_threads is 0"):
        kind("shop", listener=Listener(), check_threads=0)


def test_the_blocking_producer_takes_no_local_transaction_that_has_to_be_awaited() -> None:
    with pytest.raises(SettingsError, match=r"use cometmq\.aio"):
        BlockingProducer("shop", listener=AsyncListener())
