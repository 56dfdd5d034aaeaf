"""Sends that are stored once: where a lane stands, and its next messages; see `wire/exactly_once.py`.

Rules kept here:
- A message is checked, diverted and put as any other is; only then does its lane go on. What is refused has
  changed nothing.
- What is answered as stored, now or before, is as safe as the settings ask for.
- Of a request that the lane has in part, the rest is stored.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable
from typing import Final

import msgspec
from zlib_ng.zlib_ng import crc32

from cometmq.broker.context import BrokerContext
from cometmq.broker.send.exactly_once import Lane, OnceRefused
from cometmq.model.message_properties import ONCE
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, Deferred, handles
from cometmq.store.put.writer import PutResult
from cometmq.store.status import PutStatus
from cometmq.wire.codes import ResponseCode
from cometmq.wire.exactly_once import (
    OnceStep,
    OwnRequestCode,
    SendOnceRequest,
    SendOnceResponse,
    StandingRequest,
    StandingResponse,
    without_first,
)
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.send import SendMessageRequestV2

_OK: Final = PutStatus.PUT_OK
_NOT_SAFE: Final = "what is stored is not known to be on the disk; ask again"
_ASK_FIRST: Final = "ask where the lane stands before the first message is sent"


class OnceHandlers:
    """GET_STANDING and SEND_ONCE."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._once = context.once
        self._sending = context.sending

    @handles(OwnRequestCode.GET_STANDING, StandingRequest)
    async def standing(self, header: StandingRequest, request: Command, connection: Connection) -> Answer:
        """How far a lane is, and safely so."""
        await self._once.prepare()
        lane = self._once.lanes.get(header.query, header.topic, header.partition)
        if not await self._once.wait_safe(lane.end_offset):
            return Answer(ResponseCode.FLUSH_DISK_TIMEOUT, remark=_NOT_SAFE)
        return Answer(
            header=StandingResponse(
                batch=lane.batch, next_sequence=lane.next_sequence, digest=lane.digest, shards=lane.shards
            )
        )

    @handles(OwnRequestCode.SEND_ONCE, SendOnceRequest)
    def send(
        self, header: SendOnceRequest, request: Command, connection: Connection
    ) -> Answer | Deferred | Awaitable[Answer]:
        """Put what a lane has not got yet."""
        if not self._once.is_ready:
            raise OnceRefused(_ASK_FIRST)
        lanes = self._once.lanes
        lane = lanes.get(header.query, header.topic, header.partition)
        step = _step_of(header)
        first = lanes.missing_from(lane, step)
        if first is None:
            return self._nothing_to_store(lane) if self._sending.waits_for_flush else _standing(lane)
        body, digest = request.body, header.digest_before
        if first > step.first:
            known, body = without_first(body, first - step.first)
            digest = crc32(known, digest)
        lanes.check_digest(lane, step, digest)
        step = msgspec.structs.replace(step, first=first, count=step.end - first)
        command = msgspec.structs.replace(request, body=body)
        return self._sending.send(
            _plain_send(header),
            command,
            connection,
            added={ONCE: step.value()},
            finish=functools.partial(self._finish, lane, step),
        )

    def _finish(
        self,
        lane: Lane,
        step: OnceStep,
        result: PutResult,
        request: Command,
        connection: Connection,
        *,
        waits: bool,
        topic_made: bool,
        **_: object,
    ) -> Answer | Deferred:
        """Let a lane go on with its messages, and answer when they are safe."""
        sending = self._sending
        if result.status is not _OK:
            return sending.answers.not_stored(result.status)
        self._once.is_dirty = True
        advanced = self._once.lanes.advance(lane, step, result.end_offset, result.store_timestamp_ms)
        sending.answers.count(step.count, result.end_offset - result.physical_offset, result.end_offset)

        def answer(status: PutStatus) -> Answer:
            if status is _OK:
                return _standing(advanced, step.count)
            return Answer(ResponseCode.FLUSH_DISK_TIMEOUT, remark=_NOT_SAFE)

        return sending.answer_when_safe(
            result, request, connection, answer, waits=waits, topic_made=topic_made
        )

    async def _nothing_to_store(self, lane: Lane) -> Answer:
        if not await self._once.wait_safe(lane.end_offset):
            return Answer(ResponseCode.FLUSH_DISK_TIMEOUT, remark=_NOT_SAFE)
        return _standing(lane)


def _standing(lane: Lane, stored: int = 0) -> Answer:
    """What a writer is told."""
    return Answer(
        header=SendOnceResponse(
            batch=lane.batch,
            next_sequence=lane.next_sequence,
            digest=lane.digest,
            shards=lane.shards,
            stored=stored,
        )
    )


def _step_of(header: SendOnceRequest) -> OnceStep:
    if (
        header.count < 1
        or (header.single and header.count > 1)
        or min(header.first_sequence, header.batch) < 0
    ):
        raise OnceRefused("a request has at least one message, and numbers from 0 on")
    if not header.query or any(ord(each) < 0x20 for each in header.query):
        raise OnceRefused("a query has a name without control characters")
    return OnceStep(
        header.query,
        header.batch,
        header.partition,
        header.first_sequence,
        header.count,
        header.digest_after,
        header.shards,
    )


def _plain_send(header: SendOnceRequest) -> SendMessageRequestV2:
    """The request as it would be without a lane."""
    return SendMessageRequestV2(
        producer_group=header.producer_group,
        topic=header.topic,
        default_topic=header.default_topic,
        default_topic_queue_nums=header.default_topic_queue_nums,
        queue_id=header.queue_id,
        sys_flag=0,
        born_timestamp=header.born_timestamp,
        flag=0,
        properties=header.properties,
        batch=not header.single,
    )
