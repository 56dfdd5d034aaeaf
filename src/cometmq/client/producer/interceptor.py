"""Send interceptors: see and change the messages of a producer, and see what becomes of them.

Rules kept here:
- Before a send they are called in order, after it in the reverse order. Each sees after the send the very
  message that it passed on before.
- `after_send` is called exactly once for every `before_send` that returned, whatever happens in between.
- An error of `before_send` refuses the message, because what an interceptor checks or adds may be needed. An
  error of `after_send` is logged, because it changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from cometmq.client.producer.sender import SendReceipt
from cometmq.model.errors import ClientError
from cometmq.model.message import Message

log = logging.getLogger("cometmq.client")


class SendInterceptor:
    """Is called before and after every send of a producer; override what you need.

    Both methods run on the event loop of the producer, in the context (`contextvars`) of the caller, and must
    not block.
    """

    def before_send(self, message: Message) -> Message | None:
        """Return the message to send in place of this one, or None to send this one.

        An error refuses the message, and goes to the caller.
        """

    def after_send(self, message: Message, receipt: SendReceipt | None, error: BaseException | None) -> None:
        """The message was sent, or failed; a message that was sent one-way has neither receipt nor error."""


class InterceptedSend:
    """One message on its way through the interceptors; `message` is what they made of it."""

    __slots__ = ("_passed", "message")

    def __init__(self, interceptors: Sequence[SendInterceptor], message: Message) -> None:
        self._passed: list[tuple[SendInterceptor, Message]] = []
        for each in interceptors:
            try:
                changed = each.before_send(message)
                if changed is not None and not isinstance(changed, Message):
                    raise ClientError(
                        f"before_send of {type(each).__name__} returned {type(changed).__name__}; "
                        "return a Message, or None to keep the one it got"
                    )
            except BaseException as error:
                self.end(None, error)
                raise
            message = message if changed is None else changed
            self._passed.append((each, message))
        self.message = message

    def end(self, receipt: SendReceipt | None, error: BaseException | None) -> None:
        """Tell the interceptors the outcome."""
        for interceptor, message in reversed(self._passed):
            try:
                interceptor.after_send(message, receipt, error)
            except Exception:
                log.exception("after_send of %s failed", type(interceptor).__name__)


class InterceptedBatch:
    """The messages of a batch on their way through the interceptors."""

    def __init__(self, interceptors: Sequence[SendInterceptor], messages: Sequence[Message]) -> None:
        self._sends: list[InterceptedSend] = []
        try:
            self._sends.extend(InterceptedSend(interceptors, message) for message in messages)
        except BaseException as error:
            self.end((), error)
            raise
        self.messages = [send.message for send in self._sends]

    def end(self, receipts: Sequence[SendReceipt], error: BaseException | None) -> None:
        """Tell the interceptors the outcome: the receipts of the first messages, and the error of others."""
        for number, send in enumerate(self._sends):
            if number < len(receipts):
                send.end(receipts[number], None)
            else:
                send.end(None, error)
