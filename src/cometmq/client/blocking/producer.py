"""The blocking producers; their namesakes in `cometmq.aio` say what each method does.

Rules kept here:
- A local transaction runs on the thread of the caller, where its database connections are; checks run on
  threads of the producer.
- A background send is unfinished until its callback has returned; `flush` waits for both.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, Self, TypeVar, Unpack

from cometmq.client.blocking.loop import BlockingClient, BlockingGroupClient, blocking, on_loop
from cometmq.client.consumer.listener import is_async
from cometmq.client.options import documented
from cometmq.client.producer import producer as aio
from cometmq.client.producer import transactions as aio_transactions
from cometmq.client.producer.in_flight import SendCallback, UnseenFailures, flush_timeout, run_callback
from cometmq.client.producer.interceptor import SendInterceptor
from cometmq.client.producer.producer import MessageFields
from cometmq.client.producer.queue_selection import SendOptions
from cometmq.client.producer.sender import SendReceipt, SendStatus
from cometmq.client.producer.settings import ProducerOptions, ProducerSettings
from cometmq.client.producer.transactions import (
    OpenTransaction,
    TransactionCheck,
    TransactionListener,
    TransactionReceipt,
    TransactionState,
    listener_needed,
    state_of,
)
from cometmq.client.producer.transactions import Transaction as AsyncTransaction
from cometmq.client.serializer import Serializer
from cometmq.model.errors import SettingsError, StateError, TooManyRequestsError
from cometmq.model.message import Message, V

log = logging.getLogger("cometmq.client")

CALLBACK_THREADS = 4

P_co = TypeVar("P_co", bound=aio.Producer[Any], covariant=True)


class _BlockingProducer(BlockingGroupClient[P_co]):
    """Common to the blocking producers."""

    def __init__(self, client: P_co) -> None:
        super().__init__(client)
        self.settings = client.settings
        self._room = threading.BoundedSemaphore(self.settings.max_in_flight_messages)
        self._callbacks: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._unfinished: set[Future[SendReceipt]] = set()
        self._failures = UnseenFailures()
        self._flushing = 0
        self._finished = threading.Condition()
        self._here = threading.local()

    def stop(self) -> None:
        """Wait for sends in flight and their callbacks, then leave; a second call does nothing."""
        super().stop()
        with self._lock:
            callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            callbacks.shutdown()

    send = blocking(aio.Producer.send)
    send_batch = blocking(aio.Producer.send_batch)
    send_oneway = blocking(aio.Producer.send_oneway)
    request = blocking(aio.Producer.request)
    reply = blocking(aio.Producer.reply)
    recall = blocking(aio.Producer.recall)
    queues = blocking(aio.Producer.queues)
    statistics = on_loop(aio.Producer.statistics)

    def send_async(
        self, message: Message, callback: SendCallback | None = None, **options: Unpack[SendOptions]
    ) -> Future[SendReceipt]:
        """Send a message without waiting; the future and the callback, if any, get the outcome.

        The options are those of `send`. Callbacks run on their own threads. If `max_in_flight_messages` sends
        and callbacks are running, this waits for room within the timeout.
        """
        timeout_s = options.get("timeout_s")
        wait_s = self.settings.send_timeout_ms / 1000 if timeout_s is None else timeout_s
        if not self._room.acquire(timeout=wait_s):
            limit = self.settings.max_in_flight_messages
            raise TooManyRequestsError(f"{limit} messages were under way for {wait_s:g} s; send slower")
        try:
            future = self._submit(self.aio.send(message, **options))
        except BaseException:
            self._room.release()
            raise
        self._unfinished.add(future)
        future.add_done_callback(lambda done: self._sent(done, callback))
        return future

    def _sent(self, future: Future[SendReceipt], callback: SendCallback | None) -> None:
        if callback is None or future.cancelled():
            if not future.cancelled():
                self._failures.add(future.exception())
            self._finish(future)
            return
        with self._lock:
            if self._callbacks is None:
                self._callbacks = ThreadPoolExecutor(CALLBACK_THREADS, "cometmq-callback")
            self._callbacks.submit(self._run_callback, future, callback)

    def _run_callback(self, future: Future[SendReceipt], callback: SendCallback) -> None:
        self._here.is_callback = True
        try:
            error = future.exception()
            run_callback(callback, None if error is not None else future.result(), error)
        finally:
            self._finish(future)

    def _finish(self, future: Future[SendReceipt]) -> None:
        self._unfinished.discard(future)
        self._room.release()
        if self._flushing:
            with self._finished:
                self._finished.notify_all()

    def _is_finished(self, future: Future[SendReceipt]) -> bool:
        return future not in self._unfinished

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until each message of `send_async` so far has its answer, and its callback has returned.

        `FlushError` has the failures since the last flush, apart from those that a callback got. Without a
        timeout this takes as long as sends and callbacks may take. After a timeout (`CallTimeoutError`) they
        go on, and may be waited for again. A callback cannot flush: it would wait for itself.
        """
        self._fork_guard.check()
        if getattr(self._here, "is_callback", False):
            raise StateError("a callback cannot flush its own producer; flush on another thread")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._finished:
            self._flushing += 1
            try:
                for future in list(self._unfinished):
                    left_s = None if deadline is None else deadline - time.monotonic()
                    if not self._finished.wait_for(partial(self._is_finished, future), left_s):
                        raise flush_timeout(len(self._unfinished), timeout_s or 0.0)
            finally:
                self._flushing -= 1
        self._failures.raise_all()


@documented(ProducerSettings, ("serializer", "interceptors"))
class Producer(_BlockingProducer[aio.Producer[V]], Generic[V]):
    """Sends messages to brokers; any number of threads may use one producer.

    ```python
    with Producer("order-service", namesrv="127.0.0.1:9876") as producer:
        receipt = producer.send(Message("orders", b"...", tags="paid", keys=["42"]))
    ```
    """

    def __init__(
        self,
        group: str,
        settings: ProducerSettings | None = None,
        *,
        serializer: Serializer[V] | None = None,
        interceptors: Sequence[SendInterceptor] = (),
        **options: Unpack[ProducerOptions],
    ) -> None:
        super().__init__(
            aio.Producer(group, settings, serializer=serializer, interceptors=interceptors, **options)
        )

    def message(self, topic: str, value: V, **fields: Unpack[MessageFields]) -> Message:
        """A message whose body is a value by the producer's serializer; the fields are those of `Message`."""
        return self.aio.message(topic, value, **fields)

    def send_value(self, topic: str, value: V, **fields: Unpack[MessageFields]) -> SendReceipt:
        """Send a value by the producer's serializer; the fields are those of `Message`."""
        return self._run(self.aio.send_value(topic, value, **fields))


class Transaction(OpenTransaction):
    """A transactional message: stored as half message when the block begins, committed if the block succeeds.

    If the block raises, the message is rolled back and nobody sees it. `decide` overrides both.
    """

    def __init__(self, client: BlockingClient[aio.Producer[Any]], transaction: AsyncTransaction) -> None:
        super().__init__(transaction.message)
        self._client = client
        self._aio = transaction

    def begin(self) -> SendReceipt:
        """Send the half message; `with` does this."""
        self._receipt = self._client._run(self._aio.begin())
        return self._receipt

    def end(self, state: TransactionState) -> TransactionReceipt:
        """Tell the broker the state; `with` does this."""
        return self._client._run(self._aio.end(state))

    def __enter__(self) -> Self:
        self._receipt = self._client._run(self._aio.begin_safely())
        return self

    def __exit__(self, error_type: object, error: BaseException | None, trace: object) -> None:
        self.end(self.state_after(error))


@documented(ProducerSettings, ("check", "listener", "topics", "check_threads", "serializer", "interceptors"))
class TransactionProducer(_BlockingProducer[aio_transactions.TransactionProducer[V]], Generic[V]):
    """Sends messages that become visible if a local transaction commits, or not at all.

    ```python
    def is_paid(message: StoredMessage) -> TransactionState:
        return TransactionState.COMMIT if payments.has(message.msg_id) else TransactionState.UNKNOWN

    with TransactionProducer("payments", check=is_paid, namesrv="127.0.0.1:9876") as producer:
        with producer.transaction(Message("paid", b"...")) as transaction:
            payments.add(transaction.transaction_id)
    ```

    See `cometmq.aio.TransactionProducer` for what `check` has to return.
    """

    def __init__(
        self,
        group: str,
        settings: ProducerSettings | None = None,
        *,
        check: TransactionCheck | None = None,
        listener: TransactionListener | None = None,
        topics: Collection[str] = (),
        check_threads: int = 4,
        serializer: Serializer[V] | None = None,
        interceptors: Sequence[SendInterceptor] = (),
        **options: Unpack[ProducerOptions],
    ) -> None:
        if listener is not None and is_async(listener.execute):
            raise SettingsError("execute is a coroutine function; use cometmq.aio, or a plain function here")
        super().__init__(
            aio_transactions.TransactionProducer(
                group,
                settings,
                check=check,
                listener=listener,
                topics=topics,
                check_threads=check_threads,
                serializer=serializer,
                interceptors=interceptors,
                **options,
            )
        )

    def message(self, topic: str, value: V, **fields: Unpack[MessageFields]) -> Message:
        """A message whose body is a value by the producer's serializer; the fields are those of `Message`."""
        return self.aio.message(topic, value, **fields)

    def send_value(self, topic: str, value: V, **fields: Unpack[MessageFields]) -> SendReceipt:
        """Send a value by the producer's serializer; the fields are those of `Message`."""
        return self._run(self.aio.send_value(topic, value, **fields))

    def transaction(self, message: Message, **options: Unpack[SendOptions]) -> Transaction:
        """`with producer.transaction(message) as transaction:` commits the message if the block succeeds.

        The options are those of `send`.
        """
        return Transaction(self, self.aio.transaction(message, **options))

    def send_in_transaction(
        self, message: Message, arg: object = None, **options: Unpack[SendOptions]
    ) -> TransactionReceipt:
        """Send a message and have the listener run its local transaction with `arg` on this thread.

        The options are those of `send`. See `cometmq.aio.TransactionProducer.send_in_transaction`.
        """
        listener = listener_needed(self.aio.listener)
        transaction = self.transaction(message, **options)
        receipt = transaction.begin()
        state = TransactionState.ROLLBACK
        if receipt.status is SendStatus.SEND_OK:
            try:
                state = state_of(listener.execute(transaction, arg))
            except Exception:
                log.exception("the local transaction of message %s failed", receipt.msg_id)
                state = TransactionState.UNKNOWN
            except BaseException:  # the thread is interrupted, perhaps in the middle of the transaction
                transaction.end(TransactionState.UNKNOWN)
                raise
        return transaction.end(state)
