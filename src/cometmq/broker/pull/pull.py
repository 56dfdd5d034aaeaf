"""PULL_MESSAGE: reading a queue for a consumer, at once, after a cold read, or when a message comes.

Rules kept here:
- Messages in memory are read and answered in the turn of the event loop in which the pull came. Older ones
  are brought into memory by a worker thread first.
- Answer code and next offset follow from how the read ended, as RocketMQ has it.
- Only the first run of a pull may be held and may commit an offset; a run after a wake-up does neither.
- A bulk pull differs from an ordinary one in how much it brings, and in nothing else.
- Of a group over its cold read threshold (`cold_reads.py`), a push consumer is refused, and a pull consumer
  waits and gets a single message.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from cometmq.broker.groups.offsets import PROXY_FOR_BROADCAST, BroadcastOffsets, ConsumerOffsets
from cometmq.broker.groups.online import Clients
from cometmq.broker.monitor.counters import Traffic
from cometmq.broker.pull.checks import Permit, PullChecks
from cometmq.broker.pull.cold_reads import HOLD_S, REFUSAL, ColdReads
from cometmq.broker.pull.long_polling import HeldPull, HeldPulls
from cometmq.broker.settings import Settings
from cometmq.ports.clock import Clock
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Answer, Deferred, Result
from cometmq.replication.client import HaClient
from cometmq.store.message_store import MessageStore
from cometmq.store.read.reader import GetResult, GetStatus
from cometmq.wire.bodies.heartbeat import ConsumeType
from cometmq.wire.codes import ResponseCode
from cometmq.wire.frame.command import Command, Payload, encode_response_head
from cometmq.wire.frame.framing import FRAME_PREFIX_BYTES, JSON
from cometmq.wire.headers.pull import PullMessageRequest

COMMITS_OFFSET: Final = 1
MAY_BE_HELD: Final = 2
"""Bits of a pull's flag."""

MAX_FILTERED_IN_BULK: Final = 800
"""The most messages that a bulk pull with a filter looks at."""

_SMALL_RECORD: Final = 2048
"""Smaller records are put together at once; larger ones go out as they are, without a copy."""

OFFSET_RESET: Final = "OFFSET_RESET"
"""How a pull ends whose group was sent elsewhere."""

_BUSY: Final = "[OVERLOAD]system busy, start flow control for a while"
_FOUND: Final = ResponseCode.SUCCESS.value
_NOT_FOUND: Final = ResponseCode.PULL_NOT_FOUND.value
_RETRY: Final = ResponseCode.PULL_RETRY_IMMEDIATELY.value
_MOVED: Final = ResponseCode.PULL_OFFSET_MOVED.value
_CODES: Final = {
    GetStatus.FOUND: _FOUND,
    GetStatus.NO_MATCHED_MESSAGE: _RETRY,
    GetStatus.MESSAGE_WAS_REMOVING: _RETRY,
    GetStatus.OFFSET_FOUND_NULL: _NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: _NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: _MOVED,
    GetStatus.OFFSET_TOO_SMALL: _MOVED,
    GetStatus.NO_MATCHED_LOGIC_QUEUE: _NOT_FOUND,
    GetStatus.NO_MESSAGE_IN_QUEUE: _NOT_FOUND,
}
_WITHOUT_MESSAGES: Final = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)


@dataclass(eq=False, repr=False)
class Puller:
    """Runs pulls."""

    _settings: Settings
    _clock: Clock
    _store: MessageStore
    _offsets: ConsumerOffsets
    _clients: Clients
    _traffic: Traffic
    _held_pulls: HeldPulls
    _broadcast: BroadcastOffsets
    _cold_reads: ColdReads
    _checks: PullChecks
    _master: HaClient | None = None

    def __post_init__(self) -> None:
        self._reader = self._store.reader
        self._bulk_reader = self._store.bulk_reader
        self._is_slave = self._settings.is_slave
        self._corrects = not self._is_slave or self._settings.store.offset_check_in_slave
        self._held_pulls.run = self.run_again

    def pull(
        self, header: PullMessageRequest, request: Command, connection: Connection, *, first: bool = True
    ) -> Result:
        """Run a pull; `first` is False for one that was held."""
        permit = self._checks.check(header, request, connection)
        if isinstance(permit, Answer):
            return permit
        topic, queue_id = header.topic, header.queue_id
        reset = self._offsets.take_reset(topic, header.consumer_group, queue_id)
        if reset is None and (permit.is_broadcast or header.request_source == PROXY_FOR_BROADCAST):
            reset = self._broadcast.initial_offset(header, connection)
        if reset is not None:
            return self._moved(header, permit, connection, reset, first)
        wanted = permit.wanted
        reader, max_count = self._reader, header.max_msg_nums
        if header.bulk:
            reader = self._bulk_reader
            if wanted is not None:  # each message is looked at, and others wait for their turn
                max_count = min(max_count, MAX_FILTERED_IN_BULK)
        if reader.cold_ranges(topic, queue_id, header.queue_offset, max_count, wanted):
            return self._pull_cold(header, permit, request, connection, max_count, first)
        if wanted is None:  # what is in memory is found in microseconds
            result = reader.get(topic, queue_id, header.queue_offset, max_count)
        else:
            started = perf_counter()
            result = reader.get(topic, queue_id, header.queue_offset, max_count, wanted=wanted)
            self._traffic.longest_get_s = max(self._traffic.longest_get_s, perf_counter() - started)
        answer = self._answer(header, permit, request, connection, result, first)
        if (
            answer.code == _NOT_FOUND
            and first
            and header.sys_flag & MAY_BE_HELD
            and result.status is not GetStatus.OFFSET_FOUND_NULL  # there are messages after a gap
        ):
            return self._hold(header, permit, request, connection)
        return answer

    def _hold(
        self, header: PullMessageRequest, permit: Permit, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """Hold a pull that found nothing."""
        config = self._settings.broker
        hold_ms = (
            header.suspend_timeout_millis if config.long_polling_enable else config.short_polling_time_mills
        )
        if self._held_pulls.hold(HeldPull(header, request, connection, permit.wanted), hold_ms):
            return DEFERRED
        return Answer(ResponseCode.SYSTEM_BUSY, remark=_BUSY)

    async def _pull_cold(
        self,
        header: PullMessageRequest,
        permit: Permit,
        request: Command,
        connection: Connection,
        max_count: int,
        first: bool,
    ) -> Answer:
        """Answer a pull when its messages are in memory, or hold it back if its group reads too many such."""
        group = header.consumer_group
        if self._cold_reads.is_over(group):
            consumers = self._clients.consumers.get(group)
            if consumers is not None and consumers.consume_type is ConsumeType.CONSUME_PASSIVELY:
                return Answer(ResponseCode.SYSTEM_BUSY, remark=REFUSAL)
            await asyncio.sleep(HOLD_S)
            max_count = 1
        began_ms = self._clock.monotonic_ms()
        result = await self._store.get(
            header.topic,
            header.queue_id,
            header.queue_offset,
            max_count,
            wanted=permit.wanted,
            bulk=bool(header.bulk),
        )
        if result.status is GetStatus.FOUND:
            waited_ms = self._clock.monotonic_ms() - began_ms
            self._traffic.longest_get_s = max(self._traffic.longest_get_s, waited_ms / 1000)
            self._traffic.waited(header.topic, group, header.queue_id, waited_ms)
            self._cold_reads.count(group, result.size)
        return self._answer(header, permit, request, connection, result, first)

    def _answer(
        self,
        header: PullMessageRequest,
        permit: Permit,
        request: Command,
        connection: Connection,
        result: GetResult,
        first: bool,
    ) -> Answer:
        status = result.status
        code = _CODES[status]
        if status in _WITHOUT_MESSAGES and header.queue_offset != 0:
            code = _MOVED
        suggested = self._suggested_broker(permit, result)
        if self._is_slave:
            if not result.suggest_pulling_from_slave:  # the master has it in memory as well
                suggested = 0
                # Without a master the consumer has nowhere to go, and would ask again without a pause.
                if code != _FOUND and self._master is not None and self._master.is_following:
                    code = _RETRY
            elif code == _MOVED and not self._corrects:
                suggested = permit.group.broker_id
                code = _RETRY
        next_offset = result.next_offset
        self._note(header, permit, connection, code, next_offset, first)
        where = suggested, next_offset, result.min_offset, result.max_offset
        if code != _FOUND:
            self._traffic.missed_pulls += 1
            return Answer(code, fields=_fields(permit, *where), remark=status.value)
        count = len(result.queue_offsets)
        self._traffic.got(header.topic, header.consumer_group, header.queue_id, count, result.size)
        body: Payload = result.records
        if result.size < len(result.records) * _SMALL_RECORD:
            body = b"".join(result.records)
        if request.serialize_type == JSON:
            return Answer(body=body, head=_FOUND_HEAD % (*where, *permit.system_flags, request.opaque))
        return Answer(body=body, fields=_fields(permit, *where), remark=status.value)

    def _suggested_broker(self, permit: Permit, result: GetResult) -> int:
        if not self._settings.broker.slave_read_enable:
            return 0
        group = permit.group
        return (
            group.which_broker_when_consume_slowly if result.suggest_pulling_from_slave else group.broker_id
        )

    def _moved(
        self,
        header: PullMessageRequest,
        permit: Permit,
        connection: Connection,
        offset: int,
        first: bool,
    ) -> Answer:
        """Send a consumer to another offset."""
        bounds = self._store.queues.bounds(header.topic, header.queue_id)
        self._note(header, permit, connection, _MOVED, offset, first)
        suggested = permit.group.broker_id if self._settings.broker.slave_read_enable else 0
        fields = _fields(permit, suggested, offset, *bounds)
        return Answer(_MOVED, fields=fields, remark=OFFSET_RESET)

    def _note(
        self,
        header: PullMessageRequest,
        permit: Permit,
        connection: Connection,
        code: int,
        next_offset: int,
        first: bool,
    ) -> None:
        """Note how far the group has pulled, and commit what it asks to commit."""
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        self._offsets.pulled(group, topic, queue_id, next_offset)
        if first and header.sys_flag & COMMITS_OFFSET and header.commit_offset >= 0:
            self._offsets.commit(connection.remote_address, group, topic, queue_id, header.commit_offset)
        if permit.is_broadcast or header.request_source == PROXY_FOR_BROADCAST:
            offset = next_offset if code == _MOVED else header.queue_offset
            self._broadcast.pulled(header, connection, offset)

    def run_again(self, held: HeldPull) -> Result:
        """Run a pull that was held."""
        return self.pull(held.header, held.request, held.connection, first=False)


def _fields(
    permit: Permit, suggested: int, next_offset: int, min_offset: int, max_offset: int
) -> dict[str, str | None]:
    topic_flag, group_flag = permit.system_flags
    return {
        "suggestWhichBrokerId": str(suggested),
        "nextBeginOffset": str(next_offset),
        "minOffset": str(min_offset),
        "maxOffset": str(max_offset),
        "topicSysFlag": str(topic_flag),
        "groupSysFlag": str(group_flag),
    }


def _found_head() -> bytes:
    """The JSON header of the answer to a pull that found messages, with gaps for what differs."""
    numbers = [-1_111_111_110 - index for index in range(7)]
    names = (
        "suggestWhichBrokerId",
        "nextBeginOffset",
        "minOffset",
        "maxOffset",
        "topicSysFlag",
        "groupSysFlag",
    )
    fields = dict(zip(names, map(str, numbers[:-1]), strict=True))
    head = encode_response_head(numbers[-1], fields=fields, remark=GetStatus.FOUND.value)
    text = head[FRAME_PREFIX_BYTES:].replace(b"%", b"%%")
    for number in numbers:
        text = text.replace(b"%d" % number, b"%d", 1)
    return text


_FOUND_HEAD: Final = _found_head()
"""Of the suggested broker, the next, the smallest and the largest offset, the flags of topic and group, and
the opaque."""
