"""Consume interceptors: called before and after every delivery to a listener.

Rules kept here:
- Before a delivery they are called in order, after it in the reverse order, on the thread or task of the
  listener, so that context variables reach it.
- `after_consume` is called exactly once for every `before_consume` that returned, whatever happens between.
- An error of `before_consume` is like one of the listener, which is not called then: what an interceptor
  checks or sets up may be needed. An error of `after_consume` is logged, because it changes nothing.
- Message traces are recorded by an interceptor of their own, the last one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from cometmq.client.consumer.listener import (
    ConsumeContext,
    ConsumeResult,
    Listener,
    Outcome,
    failure_of,
    outcome_of,
)
from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue

log = logging.getLogger("cometmq.client")


class ConsumeInterceptor:
    """Is called before and after every delivery to a listener; override what you need, with plain methods.

    They run where the listener runs: in its thread or, with a coroutine function, on the event loop, where
    they must not block.
    """

    def before_consume(self, messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
        """A listener is about to get these messages. An error has them delivered again later."""

    def after_consume(
        self,
        messages: Sequence[StoredMessage],
        context: ConsumeContext,
        result: ConsumeResult | None,
        error: BaseException | None,
    ) -> None:
        """The listener is done: it returned this result, where nothing is success, or raised this error."""


class InterceptedListener(Listener):
    """A listener with interceptors around it."""

    def __init__(self, listener: Listener, interceptors: Sequence[ConsumeInterceptor]) -> None:
        # Made for every pull, so it does not inspect the function again.
        self.function, self.batch, self.is_async = listener.function, listener.batch, listener.is_async
        self._takes_context = listener._takes_context
        self._interceptors = interceptors

    def call(self, messages: Sequence[StoredMessage], queue: MessageQueue) -> Outcome:
        context = ConsumeContext(queue)
        argument = messages if self.batch else messages[0]
        passed: list[ConsumeInterceptor] = []
        try:
            self._before(messages, context, passed)
            result = self.function(argument, context) if self._takes_context else self.function(argument)
        except BaseException as error:
            _after(passed, messages, context, None, error)
            return failure_of(error, messages, queue, context)
        outcome = outcome_of(result, context)
        _after(passed, messages, context, outcome.result, None)
        return outcome

    async def call_async(self, messages: Sequence[StoredMessage], queue: MessageQueue) -> Outcome:
        context = ConsumeContext(queue)
        argument = messages if self.batch else messages[0]
        passed: list[ConsumeInterceptor] = []
        try:
            self._before(messages, context, passed)
            running = self.function(argument, context) if self._takes_context else self.function(argument)
            result = await running
        except BaseException as error:
            _after(passed, messages, context, None, error)
            if not isinstance(error, Exception):  # cancelled, because it took too long to stop
                raise
            return failure_of(error, messages, queue, context)
        outcome = outcome_of(result, context)
        _after(passed, messages, context, outcome.result, None)
        return outcome

    def _before(
        self, messages: Sequence[StoredMessage], context: ConsumeContext, passed: list[ConsumeInterceptor]
    ) -> None:
        for each in self._interceptors:
            each.before_consume(messages, context)
            passed.append(each)


def _after(
    passed: list[ConsumeInterceptor],
    messages: Sequence[StoredMessage],
    context: ConsumeContext,
    result: ConsumeResult | None,
    error: BaseException | None,
) -> None:
    for each in reversed(passed):
        try:
            each.after_consume(messages, context, result, error)
        except Exception:
            log.exception("after_consume of %s failed", type(each).__name__)
