"""What listeners may look like, and what their results mean."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from cometmq.client.consumer.listener import DONE, ConsumeContext, ConsumeResult, Listener
from cometmq.model.errors import ClientError
from cometmq.model.message import StoredMessage
from tests.unit.client.consumer.test_process_queue import QUEUE, message

MESSAGES = [message(0), message(1)]


def test_returning_acknowledges() -> None:
    """C5."""
    got: list[Any] = []
    assert Listener(got.append, batch=False).call(MESSAGES, QUEUE) is DONE
    assert Listener(got.append, batch=True).call(MESSAGES, QUEUE) is DONE
    assert got == [MESSAGES[0], MESSAGES]
    assert not Listener(lambda message: 42, batch=False).call(MESSAGES, QUEUE).failed


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt()])
def test_raising_anything_fails_the_message_and_nothing_else(error: BaseException) -> None:
    """C5."""

    def listener(message: StoredMessage) -> None:
        raise error

    outcome = Listener(listener, batch=False).call(MESSAGES, QUEUE)
    assert outcome.failed
    assert type(error).__name__ in (outcome.error or "")


def test_a_second_parameter_gets_the_context() -> None:
    """C5."""

    def listener(message: StoredMessage, context: ConsumeContext) -> ConsumeResult:
        assert context.queue == QUEUE
        context.delay_level = 4
        return ConsumeResult.RECONSUME_LATER

    outcome = Listener(listener, batch=False).call(MESSAGES, QUEUE)
    assert outcome.failed
    assert outcome.context is not None
    assert outcome.context.delay_level == 4


def test_what_the_context_was_told_counts_also_when_the_listener_raises() -> None:
    """C5."""

    def listener(message: StoredMessage, context: ConsumeContext) -> None:
        context.delay_level = 2
        raise ValueError("no")

    outcome = Listener(listener, batch=False).call(MESSAGES, QUEUE)
    assert outcome.failed
    assert outcome.context is not None
    assert outcome.context.delay_level == 2


def test_a_default_or_keyword_parameter_is_not_taken_for_the_context() -> None:
    def listener(message: StoredMessage, retries: int = 3, *, verbose: bool = False) -> None:
        assert retries == 3

    assert Listener(listener, batch=False).call(MESSAGES, QUEUE) is DONE


async def test_coroutine_functions_partials_and_objects_are_recognised() -> None:
    async def listen(message: StoredMessage) -> None: ...

    class Object:
        async def __call__(self, message: StoredMessage) -> ConsumeResult:
            return ConsumeResult.SUSPEND

    assert Listener(listen, batch=False).is_async
    assert Listener(functools.partial(listen), batch=False).is_async
    assert not Listener(print, batch=False).is_async
    listener = Listener(Object(), batch=False)
    assert listener.is_async
    assert (await listener.call_async(MESSAGES, QUEUE)).result is ConsumeResult.SUSPEND


async def test_a_coroutine_function_that_raises_fails_the_message() -> None:
    async def listen(message: StoredMessage) -> None:
        raise ValueError("no")

    assert (await Listener(listen, batch=False).call_async(MESSAGES, QUEUE)).failed


def test_what_is_no_listener_is_refused_when_it_is_registered() -> None:
    with pytest.raises(ClientError, match="has to be a function"):
        Listener("print", batch=False)  # type: ignore[arg-type]
    with pytest.raises(ClientError, match="takes something else"):
        Listener(lambda a, b, c: None, batch=False)


def _none() -> None: ...


def _three(a: object, b: object, c: object) -> None: ...


def _keyword(message: object, *, sink: object) -> None: ...


@pytest.mark.parametrize("function", [_none, _three, _keyword, lambda: None])
def test_a_listener_that_cannot_be_called_is_refused_at_once(function: Callable[..., object]) -> None:
    """C1: not when the first message comes."""
    with pytest.raises(ClientError, match="a listener takes the message, and the context"):
        Listener(function, batch=False)


@pytest.mark.parametrize("function", [lambda *rest: None, lambda m, **more: None, lambda m, c, d=1: None])
def test_a_listener_may_take_more_than_it_gets(function: Callable[..., object]) -> None:
    assert Listener(function, batch=False).function is function
