"""Transactional messages: half message, local transaction, commit or rollback, and the broker's check-back.

Rules kept here:
- A message is stored as a half message, which nobody sees, and becomes visible when its transaction commits.
  A half message that is not stored safely is rolled back at once.
- The broker is told of commit or rollback one-way. If that is lost, or this process dies, the broker checks
  back with any producer of the group, whose `check` says how the transaction ended.
- This process answers from memory what it knows: unknown while a transaction is open, later the decision.
- The check runs on a few threads, or as a task if it is a coroutine function, never on the connection's turn.
  At most `MAX_WAITING` check-backs wait; further ones are dropped, and the broker repeats them.
- Every check-back that is taken is answered, if only with `UNKNOWN`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Final, Protocol, Self, Unpack

import msgspec

from cometmq.client.consumer.listener import is_async
from cometmq.client.consumer.listener_pool import TaskWorkers
from cometmq.client.names import unwrap, wrap_topic
from cometmq.client.options import documented
from cometmq.client.producer.interceptor import SendInterceptor
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.queue_selection import SendOptions
from cometmq.client.producer.send_request import SystemFields
from cometmq.client.producer.sender import SendReceipt, SendStatus
from cometmq.client.producer.settings import ProducerOptions, ProducerSettings
from cometmq.client.serializer import Serializer
from cometmq.model import message_properties as names
from cometmq.model.errors import (
    ClientError,
    CometError,
    MessageError,
    SendError,
    SettingsError,
    TooManyRequestsError,
)
from cometmq.model.message import Message, StoredMessage, V
from cometmq.model.names import DEFAULT_TOPIC
from cometmq.model.queue import MessageQueue
from cometmq.model.sysflag import TransactionType
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.send import CheckTransactionStateRequest, EndTransactionRequest
from cometmq.wire.record.ids import decode_offset_id

log = logging.getLogger("cometmq.client")

MAX_OPEN: Final = 10_000
MAX_REMEMBERED: Final = 10_000
MAX_WAITING: Final = 2000
_STOP_CHECKS_S: Final = 5.0


class TransactionState(StrEnum):
    """The state of a transaction."""

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"
    """Check back later."""


TYPE_OF_STATE: Final = {
    TransactionState.COMMIT: TransactionType.COMMIT,
    TransactionState.ROLLBACK: TransactionType.ROLLBACK,
    TransactionState.UNKNOWN: TransactionType.NONE,
}


class TransactionReceipt(SendReceipt, frozen=True, gc=False):
    """The receipt of a half message, and the state that the broker was told."""

    state: TransactionState = TransactionState.UNKNOWN


class OpenTransaction:
    """A transaction, for a listener."""

    def __init__(self, message: Message) -> None:
        self.message = message
        self._receipt: SendReceipt | None = None
        self._decided: TransactionState | None = None

    @property
    def receipt(self) -> SendReceipt:
        """The receipt of the half message."""
        if self._receipt is None:
            raise ClientError("the transaction has not begun; use it in a with statement")
        return self._receipt

    @property
    def transaction_id(self) -> str:
        """The id of the transaction: `msg_id` of the message that `check` gets."""
        return self.receipt.msg_id

    def decide(self, state: TransactionState) -> None:
        """Set the state that the broker is told at the end, however the block ends."""
        self._decided = state

    def state_after(self, error: BaseException | None) -> TransactionState:
        """The state at the end of a block: what was decided, or commit, or rollback after an error."""
        return self._decided or (TransactionState.COMMIT if error is None else TransactionState.ROLLBACK)


class Transaction(OpenTransaction):
    """A transactional message: stored as half message when the block begins, committed if the block succeeds.

    If the block raises, the message is rolled back and nobody sees it. `decide` overrides both.
    """

    def __init__(
        self,
        message: Message,
        send_half: Callable[[], Awaitable[SendReceipt]],
        tell_end: Callable[[Message, SendReceipt, TransactionState], Awaitable[TransactionReceipt]],
    ) -> None:
        super().__init__(message)
        self._send_half = send_half
        self._tell_end = tell_end

    async def begin(self) -> SendReceipt:
        """Send the half message; `with` does this."""
        if self._receipt is not None:
            raise ClientError("a transaction is used once; begin a new one")
        self._receipt = await self._send_half()
        return self._receipt

    async def end(self, state: TransactionState) -> TransactionReceipt:
        """Tell the broker the state; `with` does this."""
        return await self._tell_end(self.message, self.receipt, state)

    async def begin_safely(self) -> SendReceipt:
        """Send the half message; if it is not stored safely, roll it back and raise."""
        receipt = await self.begin()
        if receipt.status is not SendStatus.SEND_OK:
            await self.end(TransactionState.ROLLBACK)
            raise SendError(
                f"the half message was stored, but not safely ({receipt.status}); it was rolled back"
            )
        return receipt

    async def __aenter__(self) -> Self:
        await self.begin_safely()
        return self

    async def __aexit__(self, error_type: object, error: BaseException | None, trace: object) -> None:
        await self.end(self.state_after(error))


TransactionAnswer = TransactionState | Awaitable[TransactionState | None] | None
"""How a transaction ended; None counts as `UNKNOWN`."""

TransactionCheck = Callable[[StoredMessage], TransactionAnswer]
"""Returns how the transaction of a message ended. None, or an error, counts as `UNKNOWN`."""


class TransactionListener(Protocol):
    """Runs local transactions, and checks them later. Both methods may be coroutine functions."""

    def execute(self, transaction: OpenTransaction, arg: object) -> TransactionAnswer:
        """Run the local transaction; None, or an error, leaves the decision to `check`."""

    def check(self, message: StoredMessage) -> TransactionAnswer: ...


def listener_needed(listener: TransactionListener | None) -> TransactionListener:
    """Raise if there is no listener."""
    if listener is None:
        raise ClientError("this producer has no listener; use `transaction`, or give it a listener")
    return listener


class Decisions:
    """The transactions of this process that are open or were ended, by id."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._ended: dict[str, TransactionState] = {}

    def begin(self, transaction_id: str) -> None:
        self._open.add(transaction_id)

    def check_room(self) -> None:
        """Raise if too many are open."""
        if len(self._open) >= MAX_OPEN:
            raise TooManyRequestsError(f"{len(self._open)} transactions are open; end some first")

    def end(self, transaction_id: str, state: TransactionState) -> None:
        """Remember the state, unless it is unknown."""
        self._open.discard(transaction_id)
        if state is TransactionState.UNKNOWN:
            return
        if len(self._ended) >= MAX_REMEMBERED:
            del self._ended[next(iter(self._ended))]
        self._ended[transaction_id] = state

    def known(self, transaction_id: str) -> TransactionState | None:
        """The state; None if this process does not know the transaction."""
        if transaction_id in self._open:
            return TransactionState.UNKNOWN
        return self._ended.get(transaction_id)


def check_transactional(message: Message) -> None:
    """Refuse a message that cannot be a half message."""
    if message.is_delayed:
        raise MessageError("a message in a transaction cannot be delayed; send one of the two")


def state_of(answer: object) -> TransactionState:
    """The state that an application's result stands for."""
    return answer if isinstance(answer, TransactionState) else TransactionState.UNKNOWN


class CheckBack(msgspec.Struct, frozen=True):
    """A broker's check-back about the transaction of a message."""

    address: str
    header: CheckTransactionStateRequest
    message: StoredMessage


class CheckBacks:
    """Runs the check-backs of one producer."""

    def __init__(
        self,
        name: str,
        check: TransactionCheck,
        threads: int,
        answer: Callable[[CheckBack, TransactionState], Awaitable[None]],
    ) -> None:
        self._check = check
        self._is_async = is_async(check)
        self._answer = answer
        self._executor = ThreadPoolExecutor(threads, f"{name}-check")
        self._workers: TaskWorkers[CheckBack, None] = TaskWorkers(
            f"{name}-checks", threads, self._run, self._finished
        )
        self._waiting = 0

    def submit(self, check_back: CheckBack) -> None:
        """Run the application's check and answer the broker."""
        if self._waiting >= MAX_WAITING:
            log.warning("%d check-backs of transactions wait; a further one is dropped", self._waiting)
            return
        self._waiting += 1
        self._workers.submit([check_back])

    async def _run(self, check_back: CheckBack) -> None:
        try:
            if self._is_async:
                answer = await self._check(check_back.message)  # type: ignore[misc]
            else:
                loop = asyncio.get_running_loop()
                answer = await loop.run_in_executor(self._executor, self._check, check_back.message)
        except Exception:
            log.exception("the check of transaction %s failed", check_back.message.msg_id)
            answer = None
        try:
            await self._answer(check_back, state_of(answer))
        except Exception:
            log.exception("the answer about transaction %s was not sent", check_back.message.msg_id)

    def _finished(self, finished: list[tuple[CheckBack, None, float]]) -> None:
        self._waiting -= len(finished)

    async def stop(self, timeout_s: float) -> None:
        """Wait for running checks; brokers repeat the waiting ones elsewhere."""
        await self._workers.stop(timeout_s)
        self._executor.shutdown(wait=False, cancel_futures=True)


@documented(ProducerSettings, ("check", "listener", "topics", "check_threads", "serializer", "interceptors"))
class TransactionProducer(Producer[V]):
    """Sends messages that become visible if a local transaction commits, or not at all.

    Give a `check`, or a `listener` that has one. If a broker has not heard of the end of a transaction, for
    example after a crash, it has any producer of the group call `check`, which answers from what the
    application has stored: `COMMIT` if the local transaction is committed, `ROLLBACK` if it is not and never
    will be, `UNKNOWN` if it may still be running somewhere. It is not called for transactions that this
    process has open or has ended.

    `topics` are the topics of the producer. Their brokers get to know it at the start, so that they can check
    back transactions of an earlier run. Without them, the brokers that create topics automatically do.
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
        super().__init__(group, settings, serializer=serializer, interceptors=interceptors, **options)
        if (check is None) == (listener is None):
            raise SettingsError("give the producer a check, or a listener, which has one; not both")
        if check_threads < 1:
            raise SettingsError(f"check_threads is {check_threads}; at least one is needed")
        self.listener = listener
        self._check: TransactionCheck = listener.check if listener is not None else check  # type: ignore[assignment]
        self._check_threads = check_threads
        self._announced = [wrap_topic(self._namespace, topic) for topic in topics] or [DEFAULT_TOPIC]
        self._decisions = Decisions()
        self._checks: CheckBacks | None = None

    # Lifecycle.

    async def start(self) -> None:
        """Join the client instance, and register at the brokers for check-backs."""
        await super().start()
        self._checks = CheckBacks(self._group, self._check, self._check_threads, self._answer)
        try:
            await self._register_at_brokers(self._announced)
        except CometError as error:
            log.warning("brokers do not know producer group %s yet: %s", self._group, error)

    async def stop(self) -> None:
        """Wait for sends in flight, then leave; brokers check back with other producers of the group."""
        if self._checks is not None:
            await self._checks.stop(_STOP_CHECKS_S)
        await super().stop()

    # Transactions.

    def transaction(self, message: Message, **options: Unpack[SendOptions]) -> Transaction:
        """`async with producer.transaction(message) as transaction:` commits it if the block succeeds.

        The options are those of `send`.
        """
        return Transaction(message, lambda: self._send_half(message, **options), self._tell_end)

    async def send_in_transaction(
        self, message: Message, arg: object = None, **options: Unpack[SendOptions]
    ) -> TransactionReceipt:
        """Send a message and have the listener run its local transaction with `arg`.

        The options are those of `send`. The receipt has the state that the broker was told. If the listener
        fails, or returns nothing, that is `UNKNOWN`, and the broker checks back later. A plain function runs
        on a thread.
        """
        listener = listener_needed(self.listener)
        transaction = self.transaction(message, **options)
        receipt = await transaction.begin()
        state = TransactionState.ROLLBACK
        if receipt.status is SendStatus.SEND_OK:
            state = await self._execute(listener, transaction, arg)
        return await transaction.end(state)

    async def _execute(
        self, listener: TransactionListener, transaction: Transaction, arg: object
    ) -> TransactionState:
        try:
            if is_async(listener.execute):
                return state_of(await listener.execute(transaction, arg))  # type: ignore[misc]
            return state_of(await asyncio.to_thread(listener.execute, transaction, arg))
        except Exception:
            log.exception("the local transaction of message %s failed", transaction.transaction_id)
            return TransactionState.UNKNOWN
        except BaseException:  # the task is cancelled, perhaps in the middle of the transaction
            self._decisions.end(transaction.transaction_id, TransactionState.UNKNOWN)
            raise

    # Half message, commit and rollback.

    async def _send_half(self, message: Message, **options: Unpack[SendOptions]) -> SendReceipt:
        """Store a half message."""
        self._running_instance()
        check_transactional(message)
        self._decisions.check_room()
        properties = {names.TRAN_MSG: "true", names.PGROUP: self._group}
        system = SystemFields(properties, sys_flag=TransactionType.PREPARED)
        receipt = await self._send(message, **options, system=system)
        self._decisions.begin(receipt.msg_id)
        return receipt

    async def _tell_end(
        self, message: Message, receipt: SendReceipt, state: TransactionState
    ) -> TransactionReceipt:
        """Tell the broker the state; if that is lost, it checks back later."""
        self._decisions.end(receipt.msg_id, state)
        try:
            self._running_instance()
            queue = MessageQueue(
                wrap_topic(self._namespace, receipt.queue.topic),
                receipt.queue.broker_name,
                receipt.queue.queue_id,
            )
            broker_name, address = self._sender.locate(queue)
            header = EndTransactionRequest(
                topic=queue.topic,
                producer_group=self._group,
                tran_state_table_offset=receipt.queue_offset,
                commit_log_offset=decode_offset_id(receipt.offset_msg_id).commit_log_offset,
                commit_or_rollback=TYPE_OF_STATE[state],
                msg_id=receipt.msg_id,
                transaction_id=receipt.transaction_id,
                target_broker_name=broker_name,
            )
            await self._tell(address, header)
            if self._trace is not None:
                self._trace.transaction_ended(message, receipt.msg_id, address, state, from_check=False)
        except CometError as error:
            log.warning("the end of transaction %s was not told to its broker: %s", receipt.msg_id, error)
        return TransactionReceipt(**msgspec.structs.asdict(receipt), state=state)

    async def _tell(self, address: str, header: EndTransactionRequest) -> None:
        instance = self._running_instance()
        timeout_s = instance.settings.call_timeout_s
        await instance.remoting.oneway(address, RequestCode.END_TRANSACTION, header, timeout_s=timeout_s)

    # Check-back.

    def check_transaction(
        self, address: str, header: CheckTransactionStateRequest, message: StoredMessage
    ) -> None:
        instance = self._running_instance()
        state = self._decisions.known(message.msg_id)
        if state is None and self._namespace:
            message = msgspec.structs.replace(message, topic=unwrap(self._namespace, message.topic))
        check_back = CheckBack(address, header, message)
        if state is not None:
            instance.spawn(self._answer(check_back, state))
        elif self._checks is not None:
            self._checks.submit(check_back)

    async def _answer(self, check_back: CheckBack, state: TransactionState) -> None:
        message, asked = check_back.message, check_back.header
        header = EndTransactionRequest(
            topic=asked.topic,
            producer_group=self._group,
            tran_state_table_offset=asked.tran_state_table_offset,
            commit_log_offset=asked.commit_log_offset,
            commit_or_rollback=TYPE_OF_STATE[state],
            from_transaction_check=True,
            msg_id=message.msg_id,
            transaction_id=asked.transaction_id,
            target_broker_name=asked.target_broker_name,
        )
        try:
            await self._tell(check_back.address, header)
        except CometError as error:
            log.warning("the answer about transaction %s was not sent: %s", message.msg_id, error)
            return
        if self._trace is not None:
            address = check_back.address
            self._trace.transaction_ended(message, message.msg_id, address, state, from_check=True)
