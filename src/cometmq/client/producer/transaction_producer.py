"""The producer of messages in transactions, in asyncio.

Rules kept here:
- The half message is stored safely before anything else happens; otherwise it is rolled back at once.
- The broker is told of the end one-way. If that gets lost, or this process dies, the broker asks: `check` is
  given the message, in this process or in any other of the group, and says how its transaction ended.
- What this process itself knows it answers without `check`: unknown while a transaction is open, later what
  was decided.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Final, Unpack

import msgspec

from cometmq.client.names import unwrap, wrap_topic
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.queue_selection import QueueSelector
from cometmq.client.producer.send_request import Special
from cometmq.client.producer.send_result import SendReceipt, SendStatus
from cometmq.client.producer.settings import ProducerOptions, ProducerSettings
from cometmq.client.producer.transaction_checks import TransactionChecks, TransactionQuestion, is_async
from cometmq.client.producer.transactions import (
    TYPE_OF_STATE,
    Check,
    Decisions,
    Transaction,
    TransactionListener,
    TransactionReceipt,
    TransactionState,
    check_transactional,
    listener_needed,
    state_of,
)
from cometmq.model import message_properties as names
from cometmq.model.errors import CometError, SettingsError
from cometmq.model.message import Message
from cometmq.model.names import DEFAULT_TOPIC
from cometmq.model.queue import MessageQueue
from cometmq.model.sysflag import TransactionType
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.send import EndTransactionRequest
from cometmq.wire.record.ids import decode_offset_id

log = logging.getLogger("cometmq.client")

_STOP_CHECKS_S: Final = 5.0


class TransactionProducer(Producer):
    """Sends messages that become visible together with what the application does, or not at all.

    Give a `check`, or a `listener` that has one. A broker that has not heard of the end of a transaction, for
    example because of a crash, has it called by any producer of the group. It has to answer from what the
    application has stored: `COMMIT` if the local transaction is found committed, `ROLLBACK` if it was not and
    never will be, and `UNKNOWN` if it may still be running somewhere. It is not called about transactions
    that this very process has open, or has ended.

    `topics` are those that the producer will send to; their brokers are told of it at the start, so that they
    can ask about transactions of an earlier run. Without, the brokers that make topics by themselves are.
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
        super().__init__(group, settings, **options)
        if (check is None) == (listener is None):
            raise SettingsError("give the producer a check, or a listener, which has one; not both")
        if check_threads < 1:
            raise SettingsError(f"check_threads is {check_threads}; at least one is needed")
        self.listener = listener
        self._check: Check = listener.check if listener is not None else check  # type: ignore[assignment]
        self._check_threads = check_threads
        self._announced = [wrap_topic(self._namespace, topic) for topic in topics] or [DEFAULT_TOPIC]
        self._decisions = Decisions()
        self._checks: TransactionChecks | None = None

    # Life.

    async def start(self) -> None:
        """Join the client instance, and let brokers know whom to ask."""
        await super().start()
        self._checks = TransactionChecks(self._group, self._check, self._check_threads, self._answer)
        try:
            await self._become_known(self._announced)
        except CometError as error:
            log.warning("brokers do not know producer group %s yet: %s", self._group, error)

    async def stop(self) -> None:
        """Let what is under way come to its end, then leave; brokers ask other producers of the group."""
        if self._checks is not None:
            await self._checks.stop(_STOP_CHECKS_S)
        await super().stop()

    # Transactions.

    def transaction(
        self,
        message: Message,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: object = None,
    ) -> Transaction:
        """`async with producer.transaction(message) as transaction:` sends it if the block ends well."""
        timeout_s = self._timeout_s if timeout_s is None else timeout_s

        async def send_half() -> SendReceipt:
            return await self._send_half(message, timeout_s, queue, selector, selector_arg)

        return Transaction(message, send_half, self._tell_end)

    async def send_in_transaction(
        self,
        message: Message,
        arg: object = None,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: object = None,
    ) -> TransactionReceipt:
        """Send a message and have the listener run its local transaction, with `arg`.

        The receipt says what the broker was told. If the listener fails, or returns nothing, that is
        `UNKNOWN`, and the broker asks for it later. A plain function runs on a thread.
        """
        listener = listener_needed(self.listener)
        transaction = self.transaction(
            message, timeout_s=timeout_s, queue=queue, selector=selector, selector_arg=selector_arg
        )
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
        except BaseException:  # the task is cancelled, perhaps in the middle of it
            self._decisions.end(transaction.transaction_id, TransactionState.UNKNOWN)
            raise

    # What transactions are made of.

    async def _send_half(
        self,
        message: Message,
        timeout_s: float,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        selector_arg: object,
    ) -> SendReceipt:
        """Store a message that nobody sees yet."""
        self._running()
        check_transactional(message)
        self._decisions.check_room()
        properties = {names.TRAN_MSG: "true", names.PGROUP: self._group}
        special = Special(properties, sys_flag=TransactionType.PREPARED)
        receipt = await self._send(message, timeout_s, queue, selector, selector_arg, special)
        self._decisions.begin(receipt.msg_id)
        return receipt

    async def _tell_end(
        self, message: Message, receipt: SendReceipt, state: TransactionState
    ) -> TransactionReceipt:
        """Tell the broker how it ended. What gets lost is asked for later."""
        self._decisions.end(receipt.msg_id, state)
        try:
            self._running()
            queue = MessageQueue(
                wrap_topic(self._namespace, receipt.queue.topic),
                receipt.queue.broker_name,
                receipt.queue.queue_id,
            )
            broker_name, address = self._sender.whereabouts(queue)
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
        instance = self._running()
        timeout_s = instance.settings.call_timeout_s
        await instance.remoting.oneway(address, RequestCode.END_TRANSACTION, header, timeout_s=timeout_s)

    # What brokers ask.

    def transaction_asked(self, question: TransactionQuestion) -> None:
        instance = self._running()
        message = question.message
        state = self._decisions.known(message.msg_id)
        if state is not None:
            instance.spawn(self._answer(question, state))
            return
        if self._namespace:
            plain = msgspec.structs.replace(message, topic=unwrap(self._namespace, message.topic))
            question = msgspec.structs.replace(question, message=plain)
        if self._checks is not None:
            self._checks.ask(question)

    async def _answer(self, question: TransactionQuestion, state: TransactionState) -> None:
        message, asked = question.message, question.header
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
            await self._tell(question.address, header)
        except CometError as error:
            log.warning("the answer about transaction %s was not sent: %s", message.msg_id, error)
            return
        if self._trace is not None:
            address = question.address
            self._trace.transaction_ended(message, message.msg_id, address, state, from_check=True)
