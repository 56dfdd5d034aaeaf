"""Transactions: half messages, their ends, and checks of those that have none (B6)."""

from __future__ import annotations

from pathlib import Path

from cometmq.model.names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANSACTION_GROUP,
)
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.send import ResumeCheckHalfMessageRequest
from cometmq.wire.json import fastjson
from cometmq.wire.record.ids import encode_offset_id
from tests.answers import now_ms
from tests.integration.broker.broker_kit import BrokerKit, running_broker
from tests.integration.broker.message_types_kit import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    Half,
    Producer,
    Question,
    half_of,
    kill,
    transaction,
)
from tests.waiting import eventually

PATIENT = {"transactionCheckInterval": "600000", "transactionOpBatchInterval": "50"}
"""No checks in the time of a test."""
CHECKED = {
    "transactionCheckInterval": "50",
    "transactionTimeOut": "100",
    "transactionOpBatchInterval": "50",
    "transactionCheckMax": "3",
}


def delivered(kit: BrokerKit, topic: str = "Orders", queue_id: int = 0) -> list[bytes]:
    return [bytes(record.body) for record in kit.stored(topic, queue_id)]


def operations(kit: BrokerKit) -> list[bytes]:
    return delivered(kit, TRANS_OP_HALF_TOPIC)


async def prepare(
    kit: BrokerKit, body: bytes = b"hello", unique_key: str = "A", queue_id: int = 0, **properties: str
) -> Half:
    answer = await kit.send(
        body=body,
        queue_id=queue_id,
        sys_flag=4,
        born_timestamp=now_ms(),
        properties=transaction(unique_key, **properties),
    )
    return half_of(answer)


def open_halves(kit: BrokerKit) -> set[int]:
    """The half messages that the op topic does not know."""
    ended = {int(item) for body in operations(kit) for item in body.split(b",") if item}
    return {record.queue_offset for record in kit.stored(TRANS_HALF_TOPIC)} - ended


async def is_copied(kit: BrokerKit, times: int) -> None:
    """Wait until so many more half messages were put again."""
    enough = len(kit.stored(TRANS_HALF_TOPIC)) + times
    await eventually(lambda: len(kit.stored(TRANS_HALF_TOPIC)) >= enough, "half messages were put again")


def group_offsets(kit: BrokerKit) -> tuple[int, int]:
    """How far the half topic and the op topic are looked through."""
    query = kit.broker.context.offsets.query
    return query(TRANSACTION_GROUP, TRANS_HALF_TOPIC, 0), query(TRANSACTION_GROUP, TRANS_OP_HALF_TOPIC, 0)


# Ends


async def test_a_message_of_a_transaction_is_seen_when_it_is_committed() -> None:
    """B6: with its properties, a mark that it was committed, and the offset of its half message."""
    async with running_broker(settings=PATIENT) as kit, Producer(kit) as producer:
        half = await prepare(kit, queue_id=2, TAGS="a")
        assert (half.queue_offset, half.unique_key) == (0, "A")
        assert delivered(kit, queue_id=2) == []
        (stored,) = kit.stored(TRANS_HALF_TOPIC)
        assert stored.sys_flag & 0xC == 0
        assert stored.properties() == {
            **transaction("A", TAGS="a"),
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "DefaultCluster",
            "REAL_TOPIC": "Orders",
            "REAL_QID": "2",
            "__transactionId__": "A",
        }
        assert (await producer.end(half, COMMIT)).code == 0
        (record,) = kit.stored("Orders", 2)
        assert (bytes(record.body), record.sys_flag & 0xC) == (b"hello", COMMIT)
        assert record.prepared_transaction_offset == half.commit_log_offset
        assert record.properties_block == stored.properties_block
        assert (record.born_timestamp_ms, record.born_host) == (stored.born_timestamp_ms, stored.born_host)
        await eventually(lambda: operations(kit) == [b"0,"], "the end is noted")


async def test_half_messages_of_the_short_way_are_stored_like_the_first_one() -> None:
    """B6: from the second one on, a topic's half messages with the same names need no more checks."""
    async with running_broker(settings=PATIENT) as kit, Producer(kit) as producer:
        halves = [await prepare(kit, b"%d" % number, f"key-{number}", 1, TAGS="a") for number in range(4)]
        assert [half.queue_offset for half in halves] == [0, 1, 2, 3]
        assert [half.unique_key for half in halves] == [f"key-{number}" for number in range(4)]
        first, *others = kit.stored(TRANS_HALF_TOPIC)
        for number, other in enumerate(others, 1):
            assert (bytes(other.body), other.sys_flag) == (b"%d" % number, first.sys_flag)
            expected = bytes(first.properties_block).replace(b"key-0", b"key-%d" % number)
            assert bytes(other.properties_block) == expected
            assert other.born_host == first.born_host
        assert kit.broker.context.transactions.counts.total == 4
        for half in halves:
            assert (await producer.end(half, COMMIT)).code == 0
        assert delivered(kit, queue_id=1) == [b"0", b"1", b"2", b"3"]
        assert kit.broker.context.transactions.counts.total == 0


async def test_a_message_of_a_transaction_that_is_rolled_back_is_never_seen() -> None:
    """B6."""
    async with running_broker(settings=PATIENT) as kit, Producer(kit) as producer:
        half = await prepare(kit)
        assert (await producer.end(half, ROLLBACK)).code == 0
        await eventually(lambda: operations(kit) == [b"0,"], "the end is noted")
        assert delivered(kit) == []


async def test_ends_are_noted_together() -> None:
    """B6: in messages that are not longer than the settings say, and of Apache's form."""
    settings = {**PATIENT, "transactionOpBatchInterval": "600000", "transactionOpMsgMaxSize": "8"}
    async with running_broker(settings=settings) as kit, Producer(kit) as producer:
        halves = [await prepare(kit, unique_key=str(number)) for number in range(7)]
        for half in halves[:4]:
            await producer.end(half, COMMIT)
        assert operations(kit) == []
        await producer.end(halves[4], ROLLBACK)
        assert operations(kit) == [b"0,1,2,3,", b"4,"]
        (operation, _) = kit.stored(TRANS_OP_HALF_TOPIC)
        assert operation.properties() == {"TAGS": "d", "WAIT": "true"}


async def test_a_transaction_ends_once_however_often_its_producer_says_so() -> None:
    """B6."""
    async with running_broker(settings=PATIENT) as kit, Producer(kit) as producer:
        half = await prepare(kit)
        for _ in range(3):
            assert (await producer.end(half, COMMIT)).code == 0
        assert delivered(kit) == [b"hello"]
        refused = await producer.end(half, ROLLBACK)
        assert (refused.code, refused.remark) == (1, "the transaction has ended already: COMMIT")


async def test_an_end_that_does_not_name_its_half_message_is_refused() -> None:
    """B6: with Apache's remarks, and it changes nothing."""
    async with running_broker(settings=PATIENT) as kit, Producer(kit) as producer:
        half = await prepare(kit)
        for changes, remark in (
            ({"producer_group": "other"}, "The producer group wrong"),
            ({"tran_state_table_offset": 5}, "The transaction state table offset wrong"),
            ({"commit_log_offset": 1}, "Find prepared transaction message failed"),
            ({"commit_log_offset": 10**9}, "Find prepared transaction message failed"),
        ):
            refused = await producer.end(half, COMMIT, **changes)
            assert (refused.code, refused.remark) == (1, remark)
        assert (await producer.end(half, UNKNOWN)).code == 0
        assert (await producer.end(half, 3)).code == 1
        assert delivered(kit) == []
        assert kit.broker.context.transactions.counts.counts["Orders"].count == 1


async def test_an_ordinary_message_cannot_be_committed() -> None:
    """B6: even if it says that it belongs to the producer."""
    async with running_broker(settings=PATIENT) as kit, Producer(kit) as producer:
        answer = await kit.send(properties={"UNIQ_KEY": "A", "PGROUP": "shop", "REAL_TOPIC": "Orders"})
        refused = await producer.end(half_of(answer), COMMIT)
        assert (refused.code, refused.remark) == (1, "The commit log offset wrong")


async def test_an_end_after_the_time_that_was_asked_for_waits_for_the_check() -> None:
    """B6."""
    settings = {**PATIENT, "transactionTimeOut": "1"}
    async with running_broker(settings=settings) as kit, Producer(kit) as producer:
        half = await prepare(kit, CHECK_IMMUNITY_TIME_IN_SECONDS="0")
        began_ms = now_ms()
        await eventually(lambda: now_ms() > began_ms + 2, "the time is over")
        assert (await producer.end(half, COMMIT)).code == 604
        assert (await producer.end(half, COMMIT, from_check=True)).code == 0
        assert delivered(kit) == [b"hello"]


async def test_a_transaction_cannot_be_delayed() -> None:
    """B6: the message would be lost."""
    async with running_broker(settings=PATIENT) as kit:
        for properties in ({"DELAY": "1"}, {"TIMER_DELAY_SEC": "1"}):
            answer = await kit.send(properties=transaction("A", **properties))
            assert answer.code == 13
            assert "cannot be delayed" in (answer.remark or "")
        assert kit.broker.context.store.log.max_offset == 0


async def test_transactions_are_refused_where_the_settings_say_so() -> None:
    """B6."""
    async with running_broker(settings={"rejectTransactionMessage": "true"}) as kit:
        answer = await kit.send(properties=transaction("A"))
        expected = "the broker[127.0.0.1] sending transaction message is forbidden"
        assert (answer.code, answer.remark) == (16, expected)


# Checks


async def test_a_producer_that_says_nothing_is_asked_and_its_answer_counts() -> None:
    """B6: the question has the message as the producer knows it; each outcome is carried out."""
    async with running_broker(settings=CHECKED) as kit, Producer(kit) as producer:
        outcomes = {"A": COMMIT, "B": ROLLBACK}
        producer.on_question = lambda question: outcomes[question.half.unique_key]
        await prepare(kit, b"first", "A", queue_id=1)
        await prepare(kit, b"second", "B", queue_id=1)
        await eventually(lambda: len(producer.questions) == 2, "both are asked about")
        await eventually(lambda: delivered(kit, queue_id=1) == [b"first"], "the first one is committed")
        header, message = producer.questions[0]
        assert (header.topic, header.target_broker_name) == (TRANS_HALF_TOPIC, "embedded")
        assert (header.msg_id, header.transaction_id) == ("A", "A")
        assert (message.topic, message.queue_id, bytes(message.body)) == ("Orders", 1, b"first")
        assert message.properties()["TRANSACTION_CHECK_TIMES"] == "1"
        copy = kit.stored(TRANS_HALF_TOPIC)[header.tran_state_table_offset]
        assert copy.physical_offset == header.commit_log_offset == message.physical_offset
        assert header.offset_msg_id == encode_offset_id(copy.store_host, copy.physical_offset)
        await eventually(lambda: group_offsets(kit) == (4, len(operations(kit))), "everything is done with")
        assert len(producer.questions) == 2


async def test_a_half_message_that_is_young_or_has_ended_is_not_asked_about() -> None:
    """B6."""
    settings = {**CHECKED, "transactionTimeOut": "400"}
    async with running_broker(settings=settings) as kit, Producer(kit) as producer:
        began_ms = now_ms()
        ended = [await prepare(kit, b"%d" % number, str(number)) for number in range(50)]
        for half in ended:
            await producer.end(half, COMMIT)
        open_one = await prepare(kit, b"open", "open")
        await eventually(lambda: bool(producer.questions), "the open one is asked about")
        assert now_ms() - began_ms >= 400
        assert {question.half.unique_key for question in producer.questions} == {"open"}
        assert producer.questions[0].header.tran_state_table_offset > open_one.queue_offset
        assert len(delivered(kit)) == 50


async def test_a_transaction_that_nobody_can_say_the_end_of_is_given_up_after_some_checks() -> None:
    """B6: its message is moved to a topic of its own, from where it can be checked again."""
    async with running_broker(settings=CHECKED) as kit, Producer(kit) as producer:
        producer.on_question = lambda _: UNKNOWN
        await prepare(kit, b"stuck")
        await eventually(lambda: delivered(kit, TRANS_CHECK_MAX_TIME_TOPIC) == [b"stuck"], "it is given up")
        assert [
            question.message.properties()["TRANSACTION_CHECK_TIMES"] for question in producer.questions
        ] == ["1", "2", "3"]
        assert kit.broker.context.transactions.counts.total == 0
        (given_up,) = kit.stored(TRANS_CHECK_MAX_TIME_TOPIC)

        producer.on_question = lambda _: COMMIT
        msg_id = encode_offset_id(given_up.store_host, given_up.physical_offset)
        await kit.ok(
            RequestCode.RESUME_CHECK_HALF_MESSAGE,
            ResumeCheckHalfMessageRequest(topic="Orders", msg_id=msg_id),
        )
        await eventually(lambda: delivered(kit) == [b"stuck"], "it is committed after all")
        refused = await kit.call(
            RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessageRequest(msg_id="nonsense")
        )
        assert refused.code == 1


async def test_checks_go_to_producers_of_the_group_in_turn() -> None:
    """B6: whoever of them is connected, and to no other group."""
    settings = {**CHECKED, "transactionCheckMax": "100"}
    async with (
        running_broker(settings=settings) as kit,
        Producer(kit, "one") as one,
        Producer(kit, "two") as two,
        Producer(kit, "stranger", "other") as stranger,
    ):
        await prepare(kit)
        await eventually(lambda: bool(one.questions) and bool(two.questions), "both are asked")
        await two.client.stop()
        await eventually(lambda: len(kit.broker.context.clients.producers["shop"]) == 1, "one is gone")
        asked = len(one.questions)
        one.on_question = lambda _: COMMIT
        await eventually(lambda: delivered(kit) == [b"hello"], "the other one ends it")
        assert len(one.questions) > asked
        assert stranger.questions == []


async def test_an_end_that_names_an_older_copy_ends_the_transaction() -> None:
    """B6: so that a slow producer that was asked meanwhile does not commit twice."""
    async with running_broker(settings=CHECKED) as kit, Producer(kit) as producer:
        half = await prepare(kit, b"once")
        await eventually(lambda: bool(producer.questions), "it is asked about")
        assert (await producer.end(half, COMMIT)).code == 0
        for question in list(producer.questions):
            assert (await producer.end(question.half, COMMIT, from_check=True)).code == 0
        end = kit.broker.context.store.queues.get(TRANS_HALF_TOPIC, 0).max_offset
        await eventually(lambda: group_offsets(kit)[0] == end, "nothing is open any more")
        assert delivered(kit) == [b"once"]


async def test_a_producer_that_asks_for_time_is_not_asked_before_it_is_over() -> None:
    """B6: and what ends meanwhile is not asked about at all."""
    async with running_broker(settings=CHECKED) as kit, Producer(kit) as producer:
        began_ms = now_ms()
        ended = await prepare(kit, b"ended", "A", CHECK_IMMUNITY_TIME_IN_SECONDS="1")
        opened = await prepare(kit, b"open", "B", CHECK_IMMUNITY_TIME_IN_SECONDS="1")
        await eventually(lambda: group_offsets(kit)[0] >= 4, "they are put aside")
        assert (await producer.end(ended, COMMIT)).code == 0
        await eventually(lambda: bool(producer.questions), "the open one is asked about")
        assert now_ms() - began_ms >= 1000
        assert {question.half.unique_key for question in producer.questions} == {"B"}
        question = producer.questions[0]
        assert question.message.properties()["TRAN_PREPARED_QUEUE_OFFSET"] == str(opened.queue_offset)
        assert delivered(kit) == [b"ended"]


# Restarts


async def test_what_is_open_after_a_restart_is_asked_about_and_what_has_ended_is_not(tmp_path: Path) -> None:
    """B6: all that is known about ends is in the store when the broker stops in order."""
    settings = {**PATIENT, "transactionOpBatchInterval": "600000"}
    async with running_broker(tmp_path, settings) as kit, Producer(kit) as producer:
        for number in range(3):
            await producer.end(await prepare(kit, b"ended", f"ended-{number}"), COMMIT)
        await prepare(kit, b"open", "open")
        assert operations(kit) == []
    async with running_broker(tmp_path, CHECKED) as kit, Producer(kit) as producer:
        producer.on_question = lambda _: COMMIT
        await eventually(lambda: delivered(kit)[3:] == [b"open"], "the open one is committed")
        assert {question.half.unique_key for question in producer.questions} == {"open"}
        assert kit.broker.context.transactions.counts.total == 0


async def test_a_kill_loses_no_transaction(tmp_path: Path) -> None:
    """B4, B6: neither an open one nor the end of one that was noted."""
    async with running_broker(tmp_path / "killed", PATIENT) as kit, Producer(kit) as producer:
        await producer.end(await prepare(kit, b"ended", "ended"), ROLLBACK)
        await eventually(lambda: operations(kit) == [b"0,"], "the end is noted")
        await prepare(kit, b"open", "open")
        left = kill(kit, tmp_path / "left")
    async with running_broker(left, CHECKED) as kit, Producer(kit) as producer:
        seen: list[str] = []

        def answer(question: Question) -> int:
            seen.append(question.half.unique_key)
            return COMMIT

        producer.on_question = answer
        await eventually(lambda: delivered(kit) == [b"open"], "the open one is committed")
        assert seen == ["open"]


async def test_kills_do_not_multiply_a_transaction_that_is_asked_about(tmp_path: Path) -> None:
    """B4, B6: however often its half message was put again, after a kill at most one more counts as open."""
    kills, copies = 4, 5
    settings = {**CHECKED, "transactionCheckMax": "10000", "flushConsumerOffsetInterval": "600000"}
    folder = tmp_path / "0"
    for number in range(kills + 1):
        async with running_broker(folder, settings) as kit:
            if number == 0:
                await prepare(kit)
            await is_copied(kit, copies)
            assert len(open_halves(kit)) <= number + 1
            folder = kill(kit, tmp_path / str(number + 1))


async def test_a_transaction_that_asked_for_time_does_not_end_by_a_kill(tmp_path: Path) -> None:
    """B4, B6: copies of its half message look for the end of the first one, which must not seem to be one."""
    settings = {**CHECKED, "flushConsumerOffsetInterval": "600000"}
    async with running_broker(tmp_path / "killed", settings) as kit:
        await prepare(kit, CHECK_IMMUNITY_TIME_IN_SECONDS="600")
        await is_copied(kit, 3)
        left = kill(kit, tmp_path / "left")
    async with running_broker(left, settings) as kit:
        await is_copied(kit, 4)
        assert 1 <= len(open_halves(kit)) <= 3


async def test_the_number_of_open_transactions_is_saved(tmp_path: Path) -> None:
    """B6: by topic, in Apache's file."""
    async with running_broker(tmp_path, PATIENT) as kit, Producer(kit) as producer:
        await prepare(kit, unique_key="A")
        half = await prepare(kit, unique_key="B")
        await producer.end(half, ROLLBACK)
    saved = fastjson.loads((tmp_path / "store" / "config" / "transactionMetrics").read_bytes())
    assert saved["transactionCount"]["Orders"]["count"] == 1


async def test_transactions_work_with_synchronous_flush() -> None:
    """B6: also where an end is noted that is not on the disk yet."""
    settings = {**CHECKED, "flushDiskType": "SYNC_FLUSH"}
    async with running_broker(settings=settings) as kit, Producer(kit) as producer:
        for number in range(2):  # the long way, and then the short one
            await producer.end(await prepare(kit, b"ended", f"A{number}"), COMMIT)
        await prepare(kit, b"open", "B")
        producer.on_question = lambda _: COMMIT
        await eventually(lambda: delivered(kit) == [b"ended", b"ended", b"open"], "all are committed")
        assert {question.half.unique_key for question in producer.questions} == {"B"}
