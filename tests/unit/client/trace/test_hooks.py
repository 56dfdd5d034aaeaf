"""What a consumer writes down about its listeners."""

from __future__ import annotations

import msgspec
import pytest

from cometmq.client.consumer.interceptor import InterceptedListener
from cometmq.client.consumer.listener import ConsumeResult, Listener
from cometmq.client.trace.hooks import ConsumerTrace
from cometmq.client.trace.records import ConsumeBegan, ConsumeEnded, ConsumeOutcome, TraceRecord
from cometmq.model.message import StoredMessage
from tests.unit.client.producer.test_transactions import check_back

MESSAGE = check_back("ID").message


class Notes:
    """Takes records in place of the real way out, and tells the time."""

    topic = "traces"

    def __init__(self) -> None:
        self.records: list[TraceRecord] = []
        self.now_ms = 1000

    def append(self, record: TraceRecord) -> None:
        self.records.append(record)

    def time_ms(self) -> int:
        return self.now_ms

    def trace(self, late_after_ms: int | None = None) -> ConsumerTrace:
        return ConsumerTrace(self, "billing", self.time_ms, late_after_ms)  # type: ignore[arg-type]


def outcome_of(notes: Notes) -> tuple[int, bool]:
    began, ended = notes.records
    assert isinstance(began, ConsumeBegan)
    assert isinstance(ended, ConsumeEnded)
    assert (began.msg_id, began.request_id, began.group) == (ended.msg_id, ended.request_id, ended.group)
    return ended.outcome, ended.success


def failing(message: StoredMessage) -> None:
    raise ValueError("not yet")


def later(message: StoredMessage) -> ConsumeResult:
    return ConsumeResult.RECONSUME_LATER


def fine(message: StoredMessage) -> None: ...


@pytest.mark.parametrize(
    ("function", "outcome", "success"),
    [
        (fine, ConsumeOutcome.SUCCESS, True),
        (failing, ConsumeOutcome.EXCEPTION, False),
        (later, ConsumeOutcome.FAILED, False),
    ],
)
def test_a_call_is_written_down_with_how_it_ended(
    function: object, outcome: ConsumeOutcome, success: bool
) -> None:
    notes = Notes()
    listener = Listener(function, batch=False)  # type: ignore[arg-type]
    result = InterceptedListener(listener, [notes.trace()]).call([MESSAGE], MESSAGE.queue)
    plain = listener.call([MESSAGE], MESSAGE.queue)
    assert (result.result, result.error) == (plain.result, plain.error)
    assert outcome_of(notes) == (outcome, success)


async def test_a_coroutine_function_is_too() -> None:
    async def listen(message: StoredMessage) -> None: ...

    notes = Notes()
    traced = InterceptedListener(Listener(listen, batch=False), [notes.trace()])
    assert traced.is_async
    await traced.call_async([MESSAGE], MESSAGE.queue)
    assert outcome_of(notes) == (ConsumeOutcome.SUCCESS, True)


def test_a_listener_that_took_too_long_is_late_even_if_it_succeeded() -> None:
    notes = Notes()

    def slow(message: StoredMessage) -> None:
        notes.now_ms += 500

    InterceptedListener(Listener(slow, batch=False), [notes.trace(500)]).call([MESSAGE], MESSAGE.queue)
    assert outcome_of(notes) == (ConsumeOutcome.TIME_OUT, True)
    ended = notes.records[1]
    assert isinstance(ended, ConsumeEnded)
    assert ended.cost_ms == 500


def test_messages_without_traces_and_traces_themselves_leave_nothing() -> None:
    notes = Notes()
    untraced = msgspec.structs.replace(MESSAGE, properties={**MESSAGE.properties, "TRACE_ON": "false"})
    itself = msgspec.structs.replace(MESSAGE, topic="traces")
    listener = InterceptedListener(Listener(lambda messages: None, batch=True), [notes.trace()])
    listener.call([untraced, itself, MESSAGE], MESSAGE.queue)
    assert [record.msg_id for record in notes.records] == ["ID", "ID"]
