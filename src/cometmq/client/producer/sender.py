"""Sending: one request to a broker, the retry on another one, and the receipt.

Rules kept here:
- One deadline covers all attempts; each gets the time that is left.
- A failed attempt is retried on another broker if it may work there: the broker cannot be reached, does not
  answer, or answers with one of `retry_response_codes`. A send to a chosen queue has one attempt, because
  another queue would break the order.
- An attempt of which nothing left this process is not counted: while no broker can be reached, sends try
  again with growing pauses until their time is over.
- The error of a send lists every attempt, and says whether any of them may have stored the message.
"""

from __future__ import annotations

import asyncio
import logging
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.client.instance.routes import vip_address
from cometmq.client.producer.broker_latency import BrokerFaults
from cometmq.client.producer.queue_selection import PublishTopic
from cometmq.client.producer.send_request import SendRequest
from cometmq.client.producer.settings import ProducerSettings
from cometmq.client.producer.statistics import MEASURED_MASK, SendStatistics
from cometmq.model.errors import (
    CallTimeoutError,
    CometError,
    ConnectError,
    ConnectionLostError,
    HeaderError,
    RemotingError,
    ResponseError,
    SendError,
)
from cometmq.model.queue import MessageQueue
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.send import SendMessageResponse

if TYPE_CHECKING:
    from cometmq.client.instance.instance import ClientInstance

log = logging.getLogger("cometmq.client")

DEFAULT_REGION: Final = "DefaultRegion"
CONNECT_FAILED: Final = 10001
ANSWER_TIMEOUT: Final = 10002
BROKER_UNKNOWN: Final = 10003
"""Codes of Java's client for failures without a response."""
_PAUSES_S: Final = (0.0, 0.05, 0.1, 0.2, 0.4, 0.5)
"""Before the next attempt to reach a broker; at first another one is tried at once."""
_MOST_FAILURES: Final = 16
_BATCH: Final = RequestCode.SEND_BATCH_MESSAGE.value
_FALSE: Final = "false"


class SendStatus(StrEnum):
    """How safely a message is stored. All but the first name what the broker waited for without success."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


STATUS_OF_CODE: Final[dict[int, SendStatus]] = {
    ResponseCode.SUCCESS.value: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT.value: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT.value: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE.value: SendStatus.SLAVE_NOT_AVAILABLE,
}
"""Responses that mean: stored."""


class SendReceipt(msgspec.Struct, frozen=True, gc=False):
    """Where a message is stored, and its ids."""

    status: SendStatus
    msg_id: str
    """The id that the producer gave the message."""
    offset_msg_id: str
    """The id with the broker's address and the physical offset."""
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region_id: str = DEFAULT_REGION
    trace_on: bool = True
    recall_handle: str | None = None
    """Recalls a delayed message, if the broker supports it."""


def receipts_of_batch(whole: SendReceipt, msg_ids: list[str]) -> list[SendReceipt]:
    """A receipt for each message of a batch, whose queue offsets are consecutive."""
    offset_ids = whole.offset_msg_id.split(",")
    if len(offset_ids) != len(msg_ids):  # one record for all of them
        offset_ids = [whole.offset_msg_id] * len(msg_ids)
    return [
        msgspec.structs.replace(
            whole, msg_id=msg_id, offset_msg_id=offset_id, queue_offset=whole.queue_offset + number
        )
        for number, (msg_id, offset_id) in enumerate(zip(msg_ids, offset_ids, strict=True))
    ]


class Sender:
    """Sends requests of one producer."""

    def __init__(
        self, instance: ClientInstance, settings: ProducerSettings, group: str, faults: BrokerFaults | None
    ) -> None:
        self._instance = instance
        self._remoting = instance.remoting
        self._loop = instance.remoting.loop
        self._settings = settings
        self._tries = 1 + settings.retry_times
        self._faults = faults
        self.statistics = SendStatistics()
        self._vip = settings.vip_channel_enabled
        self._beginning = {
            "a": group,
            "c": settings.create_topic_key,
            "d": str(settings.default_topic_queue_nums),
            "j": "0",
            "k": _FALSE,
        }

    def fields(
        self, topic: str, queue: MessageQueue, broker_name: str, request: SendRequest
    ) -> dict[str, str]:
        """The header of the request, in its one-letter form."""
        fields = self._beginning.copy()
        fields["b"] = topic
        fields["e"] = str(queue.queue_id)
        fields["f"] = str(request.sys_flag)
        fields["g"] = str(request.born_timestamp_ms)
        fields["h"] = str(request.flag)
        fields["i"] = request.properties
        fields["m"] = "true" if request.code == _BATCH else _FALSE
        fields["n"] = broker_name
        return fields

    async def send(
        self,
        topic: PublishTopic,
        request: SendRequest,
        deadline: float,
        chosen: MessageQueue | None = None,
        first: MessageQueue | None = None,
    ) -> SendReceipt:
        """Send to the chosen queue, or first to `first`, or round-robin."""
        failures: list[CometError] = []
        count = unsent = 0
        last_failed: str | None = None
        left = 1 if chosen is not None else self._tries
        while left > 0:
            queue = chosen or first or topic.choose(last_failed, self._faults)
            first = None
            count += 1
            begun = self._loop.time()
            try:
                broker_name, address = self.locate(queue)
                answer = await self._remoting.call(
                    address,
                    request.code,
                    self.fields(topic.topic, queue, broker_name, request),
                    body=request.body,
                    timeout_s=self._time_for_try(deadline - begun, left),
                )
                receipt = self._receipt(topic.topic, queue, request, answer, begun, left)
                statistics = self.statistics
                statistics.stored = stored = statistics.stored + 1
                if stored & MEASURED_MASK == 1:
                    statistics.response_s.observe(self._loop.time() - begun)
                return receipt
            except RemotingError as error:
                if self._faults is not None:
                    reachable = not self._settings.start_detector_enable
                    self._faults.failed(queue.broker_name, reachable=reachable)
                _note(failures, error)
                self._instance.refresh_soon()  # the broker may have moved
                if not deadline > self._loop.time():
                    break
                if _never_left(error):  # it costs no attempt
                    left_s = deadline - self._loop.time()
                    await asyncio.sleep(min(_PAUSES_S[min(unsent, len(_PAUSES_S) - 1)], left_s))
                    unsent += 1
                    left += 1
            except ResponseError as error:
                if self._faults is not None:
                    self._faults.failed(queue.broker_name, reachable=False)
                failures.append(error)
                if error.code not in self._settings.retry_response_codes:
                    break
            except HeaderError as error:  # stored, most likely, but the response cannot be read
                error.maybe_applied = True
                failures.append(error)
                break
            last_failed = queue.broker_name
            left -= 1
            self.statistics.retries += left > 0
        self.statistics.failed += 1
        raise self._failure(topic.topic, failures, count)

    def _time_for_try(self, left_s: float, tries: int) -> float:
        """The timeout of the next attempt, with this many left."""
        per_try_ms = self._settings.max_timeout_per_try_ms
        return left_s if per_try_ms is None or tries == 1 else min(left_s, per_try_ms / 1000)

    def _receipt(
        self, topic: str, queue: MessageQueue, request: SendRequest, answer: Command, begun: float, left: int
    ) -> SendReceipt:
        """The receipt in a response; raises if the message is not stored safely enough."""
        status = STATUS_OF_CODE.get(answer.code)
        if status is None:
            remark = answer.remark or "no reason given"
            raise ResponseError(f"{self.address_of(queue)} refused the message: {remark}", code=answer.code)
        if self._faults is not None:
            self._faults.answered(queue.broker_name, (self._loop.time() - begun) * 1000)
        if status is not SendStatus.SEND_OK and self._settings.retry_when_not_stored_ok and left > 1:
            stored = RemotingError(
                f"{self.address_of(queue)} has stored the message, but: {status}", code=answer.code
            )
            stored.maybe_applied = True
            raise stored
        header = answer.header(SendMessageResponse)
        return SendReceipt(
            status,
            header.batch_uniq_id or request.msg_id,
            header.msg_id,
            MessageQueue(topic, queue.broker_name, header.queue_id),
            header.queue_offset,
            header.transaction_id,
            header.msg_region or DEFAULT_REGION,
            header.trace_on is not False,
            header.recall_handle,
        )

    async def oneway(self, topic: str, queue: MessageQueue, request: SendRequest, timeout_s: float) -> None:
        """Send to a queue without a response."""
        broker_name, address = self.locate(queue)
        fields = self.fields(topic, queue, broker_name, request)
        await self._remoting.oneway(address, request.code, fields, body=request.body, timeout_s=timeout_s)

    def locate(self, queue: MessageQueue) -> tuple[str, str]:
        """The name and the address of the broker that has a queue."""
        routes = self._instance.routes
        broker_name = routes.broker_of(queue)
        address = routes.master_of(broker_name)
        if address is None:
            raise ConnectError(f"broker {broker_name} has no master now", code=BROKER_UNKNOWN)
        return broker_name, vip_address(address) if self._vip else address

    def address_of(self, queue: MessageQueue) -> str:
        """The address of the broker that has a queue, as far as known."""
        routes = self._instance.routes
        return routes.master_of(routes.broker_of(queue)) or ""

    def _failure(self, topic: str, failures: list[CometError], count: int) -> SendError:
        """One error for all attempts."""
        last = failures[-1]
        tries = "" if count == 1 else f" in {count} tries"
        error = SendError(
            f"a message to topic {topic} was not sent{tries}: {last.message}", code=_code_of(last)
        )
        error.attempts = tuple(map(str, failures))
        error.retriable = last.retriable or last.code in self._settings.retry_response_codes
        error.maybe_applied = any(failure.maybe_applied for failure in failures)
        error.__cause__ = last
        return error


def _never_left(error: RemotingError) -> bool:
    """Whether the broker could not be reached, so that the message may be sent again without a duplicate."""
    return isinstance(error, ConnectError | ConnectionLostError) and not error.maybe_applied


def _note(failures: list[CometError], error: CometError) -> None:
    """Keep the first failures and the last ones."""
    if len(failures) >= _MOST_FAILURES:
        del failures[_MOST_FAILURES // 2]
    failures.append(error)


def _code_of(failure: CometError) -> int:
    if failure.code is not None:
        return failure.code
    if isinstance(failure, ConnectError):
        return CONNECT_FAILED
    return ANSWER_TIMEOUT if isinstance(failure, CallTimeoutError) else BROKER_UNKNOWN
