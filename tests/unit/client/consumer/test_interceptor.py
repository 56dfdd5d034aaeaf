"""What interceptors see of the deliveries to a listener."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from cometmq.client.consumer.interceptor import ConsumeInterceptor, InterceptedListener
from cometmq.client.consumer.listener import ConsumeContext, ConsumeResult, Listener
from cometmq.client.interceptors import checked_interceptors
from cometmq.model.errors import SettingsError
from cometmq.model.message import StoredMessage
from tests.unit.client.producer.test_transactions import check_back

MESSAGE = check_back("ID").message


class Notes(ConsumeInterceptor):
    """Writes down what it sees into a list that several share."""

    def __init__(self, name: str, lines: list[str]) -> None:
        self._name = name
        self._lines = lines

    def before_consume(self, messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
        self._lines.append(f"{self._name} before {len(messages)} of {context.queue.topic}")

    def after_consume(
        self,
        messages: Sequence[StoredMessage],
        context: ConsumeContext,
        result: ConsumeResult | None,
        error: BaseException | None,
    ) -> None:
        self._lines.append(f"{self._name} after {result.name if result else type(error).__name__}")


def intercepted(function: object, *interceptors: ConsumeInterceptor) -> InterceptedListener:
    return InterceptedListener(Listener(function, batch=False), interceptors)  # type: ignore[arg-type]


def fine(message: StoredMessage) -> None: ...


def later(message: StoredMessage, context: ConsumeContext) -> ConsumeResult:
    context.delay_level = 5
    return ConsumeResult.RECONSUME_LATER


def failing(message: StoredMessage) -> None:
    raise KeyError("not yet")


@pytest.mark.parametrize(
    ("function", "seen", "failed"),
    [(fine, "SUCCESS", False), (later, "RECONSUME_LATER", True), (failing, "KeyError", True)],
)
def test_they_are_called_in_order_and_afterwards_in_reverse(
    function: object, seen: str, failed: bool
) -> None:
    lines: list[str] = []
    listener = intercepted(function, Notes("a", lines), Notes("b", lines))
    outcome = listener.call([MESSAGE], MESSAGE.queue)
    topic = MESSAGE.queue.topic
    assert lines == [f"a before 1 of {topic}", f"b before 1 of {topic}", f"b after {seen}", f"a after {seen}"]
    assert outcome.failed is failed
    assert outcome.context is not None
    assert outcome.context.delay_level == (5 if function is later else 0)


class Refusing(ConsumeInterceptor):
    def before_consume(self, messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
        raise PermissionError("not here")


class Clumsy(ConsumeInterceptor):
    def after_consume(self, *_: object) -> None:
        raise ZeroDivisionError


def test_an_error_before_is_like_one_of_the_listener_and_one_after_is_only_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines: list[str] = []
    called: list[StoredMessage] = []
    listener = intercepted(called.append, Notes("a", lines), Refusing(), Notes("c", lines))
    outcome = listener.call([MESSAGE], MESSAGE.queue)
    assert (outcome.failed, outcome.error, called) == (True, "PermissionError: not here", [])
    assert lines == [f"a before 1 of {MESSAGE.queue.topic}", "a after PermissionError"]
    assert not intercepted(fine, Clumsy()).call([MESSAGE], MESSAGE.queue).failed
    assert "after_consume of Clumsy failed" in caplog.text


async def test_coroutine_functions_have_them_too_and_a_cancelled_one_is_told() -> None:
    lines: list[str] = []
    begun = asyncio.Event()

    async def hangs(message: StoredMessage) -> None:
        begun.set()
        await asyncio.Event().wait()

    listener = intercepted(hangs, Notes("a", lines))
    assert listener.is_async
    call = asyncio.ensure_future(listener.call_async([MESSAGE], MESSAGE.queue))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert lines[1:] == ["a after CancelledError"]

    async def fails(message: StoredMessage) -> None:
        raise KeyError

    assert (await intercepted(fails, Notes("a", lines)).call_async([MESSAGE], MESSAGE.queue)).failed
    assert lines[3:] == ["a after KeyError"]


def test_what_cannot_be_an_interceptor_is_refused() -> None:
    class Coroutine(ConsumeInterceptor):
        async def before_consume(  # type: ignore[override]
            self, messages: Sequence[StoredMessage], context: ConsumeContext
        ) -> None: ...

    with pytest.raises(SettingsError, match="interceptor int has no method before_consume"):
        checked_interceptors([1], ConsumeInterceptor)
    with pytest.raises(
        SettingsError, match="Coroutine needs a plain, not a coroutine, method before_consume"
    ):
        checked_interceptors([Coroutine()], ConsumeInterceptor)
    with pytest.raises(SettingsError, match=r"interceptors=\[Clumsy\(…\)\]"):
        checked_interceptors(Clumsy(), ConsumeInterceptor)  # type: ignore[arg-type]
