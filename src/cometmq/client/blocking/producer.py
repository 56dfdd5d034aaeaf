"""The blocking producers.

Rule kept here: a local transaction runs on the thread of the caller, where its database connections are;
checks run on threads of the producer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from cometmq.client.blocking.loop import Face
from cometmq.client.producer import producer as aio
from cometmq.client.producer import transactions as aio_transactions
from cometmq.client.producer.in_flight import Callback
from cometmq.client.producer.queue_selection import QueueSelector
from cometmq.client.producer.sender import SendReceipt, SendStatus
from cometmq.client.producer.settings import ProducerOptions, ProducerSettings
from cometmq.client.producer.transactions import (
    Check,
    TransactionListener,
    TransactionReceipt,
    TransactionState,
    is_async,
    listener_needed,
    state_of,
)
from cometmq.client.producer.transactions import Transaction as AsyncTransaction
from cometmq.client.settings import ServiceState
from cometmq.model.errors import CometError, SettingsError, TooManyRequestsError
from cometmq.model.message import Message, StoredMessage
from cometmq.model.queue import MessageQueue

log = logging.getLogger("cometmq.client")


CALLBACK_THREADS = 4

P = TypeVar("P", bound=aio.Producer)


class ProducerFace(Face[P]):
    """What the blocking producers have in common; any number of threads may use one."""

    def __init__(self, client: P) -> None:
        super().__init__(client)
        self.settings = self.aio.settings
        self._room = threading.BoundedSemaphore(self.settings.max_in_flight_messages)
        self._callbacks: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    @property
    def group(self) -> str:
        return self.aio.group

    @property
    def client_id(self) -> str:
        return self.aio.client_id

    @property
    def state(self) -> ServiceState:
        return self.aio.state

    def stop(self) -> None:
        """Let what is under way come to its end, callbacks included, then leave."""
        super().stop()
        with self._lock:
            callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            callbacks.shutdown()

    def send(
        self,
        message: Message,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: object = None,
    ) -> SendReceipt:
        """Send a message and wait until a broker has stored it; see `cometmq.aio.Producer.send`."""
        return self._run(
            self.aio.send(
                message, timeout_s=timeout_s, queue=queue, selector=selector, selector_arg=selector_arg
            )
        )

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: object = None,
    ) -> list[SendReceipt]:
        """Send messages of one topic together; see `cometmq.aio.Producer.send_batch`."""
        return self._run(
            self.aio.send_batch(
                messages, timeout_s=timeout_s, queue=queue, selector=selector, selector_arg=selector_arg
            )
        )

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: object = None,
    ) -> None:
        """Send a message and do not ask whether it arrived; see `cometmq.aio.Producer.send_oneway`."""
        self._run(self.aio.send_oneway(message, queue=queue, selector=selector, selector_arg=selector_arg))

    def send_async(
        self,
        message: Message,
        callback: Callback | None = None,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: object = None,
    ) -> Future[SendReceipt]:
        """Send a message without waiting; the future, and the callback if any, get the outcome.

        Callbacks run on a few threads of their own. With `max_in_flight_messages` under way, callbacks that
        have not ended included, this waits for room, at most for the time-out.
        """
        wait_s = self.settings.send_timeout_ms / 1000 if timeout_s is None else timeout_s
        if not self._room.acquire(timeout=wait_s):
            limit = self.settings.max_in_flight_messages
            raise TooManyRequestsError(f"{limit} messages were under way for {wait_s:g} s; send slower")
        try:
            future = self._submit(
                self.aio.send(
                    message, timeout_s=timeout_s, queue=queue, selector=selector, selector_arg=selector_arg
                )
            )
        except BaseException:
            self._room.release()
            raise
        future.add_done_callback(lambda done: self._sent(done, callback))
        return future

    def _sent(self, future: Future[SendReceipt], callback: Callback | None) -> None:
        if callback is None or future.cancelled():
            self._room.release()
            return
        with self._lock:
            if self._callbacks is None:
                self._callbacks = ThreadPoolExecutor(CALLBACK_THREADS, "cometmq-callback")
            self._callbacks.submit(self._run_callback, future, callback)

    def _run_callback(self, future: Future[SendReceipt], callback: Callback) -> None:
        try:
            error = future.exception()
            if error is None:
                callback(future.result())
            elif isinstance(error, CometError):
                callback(error)
            else:
                log.error("a send failed in a way that it should not", exc_info=error)
        except Exception:
            log.exception("the callback of a send failed")
        finally:
            self._room.release()

    def request(
        self,
        message: Message,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: object = None,
    ) -> StoredMessage:
        """Send a message and wait for its reply; see `cometmq.aio.Producer.request`."""
        return self._run(
            self.aio.request(
                message, timeout_s=timeout_s, queue=queue, selector=selector, selector_arg=selector_arg
            )
        )

    def reply(
        self,
        message: StoredMessage,
        body: bytes,
        *,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Answer a message that was sent with `request`; see `cometmq.aio.Producer.reply`."""
        return self._run(
            self.aio.reply(message, body, tags=tags, keys=keys, properties=properties, timeout_s=timeout_s)
        )

    def recall(self, handle: str | None, topic: str, *, timeout_s: float | None = None) -> str:
        """Take back a message that is not due yet; see `cometmq.aio.Producer.recall`."""
        return self._run(self.aio.recall(handle, topic, timeout_s=timeout_s))

    def queues(self, topic: str, *, timeout_s: float | None = None) -> Sequence[MessageQueue]:
        """The queues that messages to a topic may go to."""
        return self._run(self.aio.queues(topic, timeout_s=timeout_s))


class Producer(ProducerFace[aio.Producer]):
    """Sends messages to brokers; any number of threads may use one producer.

    ```python
    with Producer("order-service", namesrv="127.0.0.1:9876") as producer:
        receipt = producer.send(Message("orders", b"...", tags="paid", keys=["42"]))
    ```
    """

    def __init__(
        self, group: str, settings: ProducerSettings | None = None, **options: Unpack[ProducerOptions]
    ) -> None:
        super().__init__(aio.Producer(group, settings, **options))


class Transaction:
    """A message in a transaction: sent as a half when the block begins, visible if the block ends well.

    If the block raises, the message is rolled back and nobody ever sees it. `decide` says otherwise.
    """

    def __init__(
        self, transaction: AsyncTransaction, run: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        self.message = transaction.message
        self._aio = transaction
        self._run = run

    @property
    def receipt(self) -> SendReceipt:
        """Where the half message is."""
        return self._aio.receipt

    @property
    def transaction_id(self) -> str:
        """What identifies the transaction: `msg_id` of the message that a check is given."""
        return self._aio.transaction_id

    def decide(self, state: TransactionState) -> None:
        """What the broker is told at the end, however the block ends."""
        self._aio.decide(state)

    def __enter__(self) -> Self:
        self._run(self._aio.begin_safely())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._aio.end_block(error))


class TransactionProducer(ProducerFace[aio_transactions.TransactionProducer]):
    """Sends messages that become visible together with what the application does, or not at all.

    ```python
    def is_paid(message: StoredMessage) -> TransactionState:
        return TransactionState.COMMIT if payments.has(message.msg_id) else TransactionState.UNKNOWN

    with TransactionProducer("payments", check=is_paid, namesrv="127.0.0.1:9876") as producer:
        with producer.transaction(Message("paid", b"...")) as transaction:
            payments.add(transaction.transaction_id)
    ```

    What `check` has to answer, and when, is said by `cometmq.aio.TransactionProducer`.
    """

    def __init__(
        self,
        group: str,
        settings: ProducerSettings | None = None,
        *,
        check: Check | None = None,
        listener: TransactionListener | None = None,
        topics: Collection[str] = (),
        check_threads: int = 4,
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
                **options,
            )
        )

    def transaction(
        self,
        message: Message,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: object = None,
    ) -> Transaction:
        """`with producer.transaction(message) as transaction:` sends it if the block ends well."""
        transaction = self.aio.transaction(
            message, timeout_s=timeout_s, queue=queue, selector=selector, selector_arg=selector_arg
        )
        return Transaction(transaction, self._run)

    def send_in_transaction(
        self,
        message: Message,
        arg: object = None,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: object = None,
    ) -> TransactionReceipt:
        """Send a message and have the listener run its local transaction, here and now.

        See `cometmq.aio.TransactionProducer.send_in_transaction`.
        """
        listener = listener_needed(self.aio.listener)
        transaction = self.aio.transaction(
            message, timeout_s=timeout_s, queue=queue, selector=selector, selector_arg=selector_arg
        )
        receipt = self._run(transaction.begin())
        state = TransactionState.ROLLBACK
        if receipt.status is SendStatus.SEND_OK:
            try:
                state = state_of(listener.execute(Transaction(transaction, self._run), arg))
            except Exception:
                log.exception("the local transaction of message %s failed", receipt.msg_id)
                state = TransactionState.UNKNOWN
            except BaseException:  # the thread is interrupted, perhaps in the middle of it
                self._run(transaction.end(TransactionState.UNKNOWN))
                raise
        return self._run(transaction.end(state))
