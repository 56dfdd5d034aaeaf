"""The blocking producer of messages in transactions.

Rules kept here: a local transaction runs on the thread of whoever sends the message, where its connections to
databases are; checks run on threads of the producer's own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine
from types import TracebackType
from typing import Any, Self, Unpack

from cometmq.client.blocking.producer import ProducerFace
from cometmq.client.producer import transaction_producer as aio
from cometmq.client.producer.queue_selection import QueueSelector
from cometmq.client.producer.send_result import SendReceipt, SendStatus
from cometmq.client.producer.settings import ProducerOptions, ProducerSettings
from cometmq.client.producer.transaction_checks import is_async
from cometmq.client.producer.transactions import (
    Check,
    TransactionListener,
    TransactionReceipt,
    TransactionState,
    listener_needed,
    state_of,
)
from cometmq.client.producer.transactions import Transaction as AsyncTransaction
from cometmq.model.errors import SettingsError
from cometmq.model.message import Message
from cometmq.model.queue import MessageQueue

log = logging.getLogger("cometmq.client")


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


class TransactionProducer(ProducerFace[aio.TransactionProducer]):
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
            aio.TransactionProducer(
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
