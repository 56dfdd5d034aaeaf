"""Messages in transactions: what they are, and what is known of how they ended.

Rules kept here:
- A message is sent as a half, which nobody sees, and becomes visible when its transaction commits. Brokers
  ask about halves whose end they have not heard of.
- What this process has decided is remembered for a while, so that it need not be found out again; while a
  transaction is open, the answer is that nobody knows yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from types import TracebackType
from typing import Final, Protocol, Self

from cometmq.client.producer.send_result import SendReceipt, SendStatus
from cometmq.model.errors import ClientError, MessageError, SendError, TooManyRequestsError
from cometmq.model.message import Message, StoredMessage
from cometmq.model.sysflag import TransactionType

MAX_OPEN: Final = 10_000
MAX_REMEMBERED: Final = 10_000


class TransactionState(StrEnum):
    """How a transaction ended, as far as known."""

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"
    """Ask again later."""


TYPE_OF_STATE: Final = {
    TransactionState.COMMIT: TransactionType.COMMIT,
    TransactionState.ROLLBACK: TransactionType.ROLLBACK,
    TransactionState.UNKNOWN: TransactionType.NONE,
}


class TransactionReceipt(SendReceipt, frozen=True, gc=False):
    """Where the half of a message was stored, and what the broker was told about its end."""

    state: TransactionState = TransactionState.UNKNOWN


class OpenTransaction(Protocol):
    """A transaction as a listener sees it, in either face."""

    message: Message

    @property
    def receipt(self) -> SendReceipt:
        """Where the half message is."""

    @property
    def transaction_id(self) -> str:
        """What identifies the transaction: `msg_id` of the message that a check is given."""


class Transaction:
    """A message in a transaction: sent as a half when the block begins, visible if the block ends well.

    If the block raises, the message is rolled back and nobody ever sees it. `decide` says otherwise.
    """

    def __init__(
        self,
        message: Message,
        send_half: Callable[[], Awaitable[SendReceipt]],
        tell_end: Callable[[Message, SendReceipt, TransactionState], Awaitable[TransactionReceipt]],
    ) -> None:
        self.message = message
        self._send_half = send_half
        self._tell_end = tell_end
        self._receipt: SendReceipt | None = None
        self._decided: TransactionState | None = None

    @property
    def receipt(self) -> SendReceipt:
        """Where the half message is."""
        if self._receipt is None:
            raise ClientError("the transaction has not begun; use it in a with statement")
        return self._receipt

    @property
    def transaction_id(self) -> str:
        """What identifies the transaction: `msg_id` of the message that a check is given."""
        return self.receipt.msg_id

    def decide(self, state: TransactionState) -> None:
        """What the broker is told at the end, however the block ends."""
        self._decided = state

    async def begin(self) -> SendReceipt:
        """Send the half message; `with` does this."""
        if self._receipt is not None:
            raise ClientError("a transaction is used once; begin a new one")
        self._receipt = await self._send_half()
        return self._receipt

    async def end(self, state: TransactionState) -> TransactionReceipt:
        """Tell the broker how it ended; `with` does this."""
        return await self._tell_end(self.message, self.receipt, state)

    async def begin_safely(self) -> None:
        """Send the half message; if it is not stored safely, roll it back and say so."""
        receipt = await self.begin()
        if receipt.status is not SendStatus.SEND_OK:
            await self.end(TransactionState.ROLLBACK)
            raise SendError(
                f"the half message was stored, but not safely ({receipt.status}); it was rolled back"
            )

    async def end_block(self, error: BaseException | None) -> None:
        """Tell the broker how the block ended."""
        usual = TransactionState.COMMIT if error is None else TransactionState.ROLLBACK
        await self.end(self._decided or usual)

    async def __aenter__(self) -> Self:
        await self.begin_safely()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end_block(error)


Answer = TransactionState | Awaitable[TransactionState | None] | None

Check = Callable[[StoredMessage], Answer]
"""Answers how the transaction of a message ended. None, or an error, counts as `UNKNOWN`."""


class TransactionListener(Protocol):
    """Runs local transactions, and says later how they ended. Both methods may be coroutine functions."""

    def execute(
        self, transaction: OpenTransaction, arg: object
    ) -> TransactionState | Awaitable[TransactionState | None] | None:
        """Run the local transaction; None, or an error, leaves it to `check`."""

    def check(
        self, message: StoredMessage
    ) -> TransactionState | Awaitable[TransactionState | None] | None: ...


def listener_needed(listener: TransactionListener | None) -> TransactionListener:
    """Refuse to go on without a listener."""
    if listener is None:
        raise ClientError("this producer has no listener; use `transaction`, or give it a listener")
    return listener


class Decisions:
    """What this process knows about its transactions, by their ids."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._ended: dict[str, TransactionState] = {}

    def begin(self, transaction_id: str) -> None:
        self._open.add(transaction_id)

    def check_room(self) -> None:
        """Refuse one more if too many are open."""
        if len(self._open) >= MAX_OPEN:
            raise TooManyRequestsError(f"{len(self._open)} transactions are open; end some first")

    def end(self, transaction_id: str, state: TransactionState) -> None:
        """Remember how it ended, unless that is still to be found out."""
        self._open.discard(transaction_id)
        if state is TransactionState.UNKNOWN:
            return
        if len(self._ended) >= MAX_REMEMBERED:
            del self._ended[next(iter(self._ended))]
        self._ended[transaction_id] = state

    def known(self, transaction_id: str) -> TransactionState | None:
        """How it ended; None if this process does not know of it."""
        if transaction_id in self._open:
            return TransactionState.UNKNOWN
        return self._ended.get(transaction_id)


def check_transactional(message: Message) -> None:
    """Refuse what a broker cannot keep as a half message."""
    if message.delay_level or message.delay_ms is not None or message.deliver_at_ms is not None:
        raise MessageError("a message in a transaction cannot be delayed; send one of the two")


def state_of(answer: object) -> TransactionState:
    """What an application's answer stands for."""
    return answer if isinstance(answer, TransactionState) else TransactionState.UNKNOWN
