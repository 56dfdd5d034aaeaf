"""Answers to brokers that ask how transactions ended.

Rules kept here:
- The application's check runs on a few threads, or as a task if it is a coroutine function, never on the
  connection's turn. At most `MAX_WAITING` questions wait; what comes then is dropped: the broker asks again.
- Every question that is taken is answered, if only with: unknown.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from cometmq.client.consumer.listener_pool import TaskWorkers
from cometmq.client.producer.transactions import Check, TransactionState, state_of
from cometmq.model.message import StoredMessage
from cometmq.wire.headers.send import CheckTransactionStateRequest

log = logging.getLogger("cometmq.client")

MAX_WAITING: Final = 2000


class TransactionQuestion(msgspec.Struct, frozen=True):
    """A broker wants to know how the transaction of a message ended."""

    address: str
    header: CheckTransactionStateRequest
    message: StoredMessage


class TransactionChecks:
    """The questions that one producer has been asked."""

    def __init__(
        self,
        name: str,
        check: Check,
        threads: int,
        answer: Callable[[TransactionQuestion, TransactionState], Awaitable[None]],
    ) -> None:
        self._check = check
        self._is_async = is_async(check)
        self._answer = answer
        self._executor = ThreadPoolExecutor(threads, f"{name}-check")
        self._workers: TaskWorkers[TransactionQuestion, None] = TaskWorkers(
            f"{name}-checks", threads, self._run, self._finished
        )
        self._waiting = 0

    def ask(self, question: TransactionQuestion) -> None:
        """Have a question answered."""
        if self._waiting >= MAX_WAITING:
            log.warning("%d questions about transactions wait; a further one is dropped", self._waiting)
            return
        self._waiting += 1
        self._workers.submit([question])

    async def _run(self, question: TransactionQuestion) -> None:
        try:
            if self._is_async:
                answer = await self._check(question.message)  # type: ignore[misc]
            else:
                loop = asyncio.get_running_loop()
                answer = await loop.run_in_executor(self._executor, self._check, question.message)
        except Exception:
            log.exception("the check of transaction %s failed", question.message.msg_id)
            answer = None
        try:
            await self._answer(question, state_of(answer))
        except Exception:
            log.exception("the answer about transaction %s was not sent", question.message.msg_id)

    def _finished(self, finished: list[tuple[TransactionQuestion, None, float]]) -> None:
        self._waiting -= len(finished)

    async def stop(self, timeout_s: float) -> None:
        """Let checks that run come to their end; what waits is asked again, of somebody else."""
        await self._workers.stop(timeout_s)
        self._executor.shutdown(wait=False, cancel_futures=True)


def is_async(function: Callable[..., object]) -> bool:
    """Whether a function, or an object that can be called, has to be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - a callable object with an async __call__
    )
