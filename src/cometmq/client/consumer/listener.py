"""Listeners: functions of the application that get messages, and the meaning of their results.

Rules kept here:
- Returning acknowledges a message, raising has it delivered again. For more control a listener returns a
  `ConsumeResult`, or takes a second parameter, the `ConsumeContext`.
- Whatever a listener raises is caught and logged; consumption continues.
- A listener is a plain function, which runs in a thread, or a coroutine function.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, Protocol, TypeVar, overload

import msgspec

from cometmq.client.serializer import Serializer, with_value
from cometmq.model.errors import ClientError
from cometmq.model.message import StoredMessage, V
from cometmq.model.queue import MessageQueue

log = logging.getLogger("cometmq.client")

DEAD_LETTER: Final = -1
"""The delay level that makes a failed message a dead letter at once."""
_MIN_SUSPEND_MS: Final = 10
_MAX_SUSPEND_MS: Final = 30_000


class ConsumeResult(Enum):
    """The optional return value of a listener."""

    SUCCESS = "done"
    RECONSUME_LATER = "deliver again later"
    SUSPEND = "try again in a moment, keeping the order"
    COMMIT = "done with everything since the last commit, where order is kept and commits are the listener's"
    ROLLBACK = "have everything since the last commit once more"


class ConsumeContext(msgspec.Struct):
    """The queue of a listener's messages, and the options for their outcome."""

    queue: MessageQueue
    delay_level: int = 0
    """The delay of failed messages: 0 grows with every attempt, -1 is a dead letter, others are levels."""
    done_count: int | None = None
    """How many of the first messages of a list are done; None is all of them."""
    auto_commit: bool = True
    """False, if ordered: only `COMMIT` moves the offset."""
    suspend_ms: int | None = None
    """How long an ordered queue waits after `SUSPEND` or `ROLLBACK`."""


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one call of a listener."""

    result: ConsumeResult = ConsumeResult.SUCCESS
    context: ConsumeContext | None = None
    error: str | None = None

    @property
    def failed(self) -> bool:
        return self.result not in (ConsumeResult.SUCCESS, ConsumeResult.COMMIT)

    def done_count(self, count: int) -> int:
        """How many of the first `count` messages are done."""
        if self.failed:
            return 0
        said = None if self.context is None else self.context.done_count
        return count if said is None else max(0, min(said, count))

    def pause_ms(self, default_ms: int) -> int:
        """How long an ordered queue waits, between 10 ms and 30 s."""
        said = None if self.context is None else self.context.suspend_ms
        return max(_MIN_SUSPEND_MS, min(default_ms if said is None else said, _MAX_SUSPEND_MS))


DONE: Final = Outcome()
"""The outcome of nearly every message."""

ListenerFunction = (
    Callable[[StoredMessage[V]], object]
    | Callable[[StoredMessage[V], ConsumeContext], object]
    | Callable[[list[StoredMessage[V]]], object]
    | Callable[[list[StoredMessage[V]], ConsumeContext], object]
)
"""`listener(message)`, or `listener(messages)` for batches; with a second parameter, the context as well."""

R = TypeVar("R")


class ListenerDecorator(Protocol[V]):
    """ListenerDecorator the function that it decorates as a listener."""

    @overload
    def __call__(self, listener: Callable[[StoredMessage[V]], R]) -> Callable[[StoredMessage[V]], R]: ...
    @overload
    def __call__(
        self, listener: Callable[[StoredMessage[V], ConsumeContext], R]
    ) -> Callable[[StoredMessage[V], ConsumeContext], R]: ...
    @overload
    def __call__(
        self, listener: Callable[[list[StoredMessage[V]]], R]
    ) -> Callable[[list[StoredMessage[V]]], R]: ...
    @overload
    def __call__(
        self, listener: Callable[[list[StoredMessage[V]], ConsumeContext], R]
    ) -> Callable[[list[StoredMessage[V]], ConsumeContext], R]: ...


class Listener:
    """A registered listener."""

    def __init__(
        self, function: Callable[..., Any], *, batch: bool, serializer: Serializer[Any] | None = None
    ) -> None:
        if not callable(function):
            raise ClientError(f"a listener has to be a function, not {type(function).__name__}")
        self.function = function if serializer is None else _with_values(function, serializer, batch)
        self.batch = batch
        self.is_async = is_async(function)
        self._takes_context = _takes_two(function)

    def call(self, messages: Sequence[StoredMessage], queue: MessageQueue) -> Outcome:
        """Call a plain function."""
        argument = messages if self.batch else messages[0]
        context = ConsumeContext(queue) if self._takes_context else None
        try:
            result = self.function(argument) if context is None else self.function(argument, context)
        except BaseException as error:  # a thread that dies of SystemExit would lose its messages
            return failure_of(error, messages, queue, context)
        return DONE if result is None and context is None else outcome_of(result, context)

    async def call_async(self, messages: Sequence[StoredMessage], queue: MessageQueue) -> Outcome:
        """Call a coroutine function."""
        argument = messages if self.batch else messages[0]
        context = ConsumeContext(queue) if self._takes_context else None
        try:
            running = self.function(argument) if context is None else self.function(argument, context)
            result = await running
        except Exception as error:
            return failure_of(error, messages, queue, context)
        return DONE if result is None and context is None else outcome_of(result, context)


def _with_values(
    function: Callable[..., Any], serializer: Serializer[Any], batch: bool
) -> Callable[..., Any]:
    """The function, called with messages whose values a serializer decodes."""

    def call(argument: Any, *context: ConsumeContext) -> Any:
        valued = (
            [with_value(message, serializer) for message in argument]
            if batch
            else with_value(argument, serializer)
        )
        return function(valued, *context)

    return call


def is_async(function: Callable[..., object]) -> bool:
    """Whether a function, or a callable object, has to be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - a callable object with an async __call__
    )


def outcome_of(result: object, context: ConsumeContext | None) -> Outcome:
    """The outcome of a listener that returned."""
    return Outcome(result if isinstance(result, ConsumeResult) else ConsumeResult.SUCCESS, context)


def failure_of(
    error: BaseException,
    messages: Sequence[StoredMessage],
    queue: MessageQueue,
    context: ConsumeContext | None,
) -> Outcome:
    """The outcome of a listener that raised; logs the error."""
    log.warning(
        "the listener failed with %d message(s) of %s from offset %d on",
        len(messages),
        queue,
        messages[0].queue_offset,
        exc_info=error,
    )
    return Outcome(ConsumeResult.RECONSUME_LATER, context, f"{type(error).__name__}: {error}")


_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIABLE: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a C function without a signature
        return False
    parameters = signature.parameters.values()
    positional = [
        each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    needed = [each for each in parameters if each.default is each.empty and each.kind not in _VARIABLE]
    takes_any = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    if len(needed) > 2 or not set(needed) <= set(positional) or not (positional or takes_any):
        name = getattr(function, "__qualname__", repr(function))
        raise ClientError(
            f"a listener takes the message, and the context if it wants it; {name}{signature} takes "
            f"{'nothing' if not positional else 'something else'}"
        )
    return len(needed) == 2
