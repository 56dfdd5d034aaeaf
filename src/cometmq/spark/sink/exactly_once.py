"""Exactly-once sending: the rows of a task form the writer sequence of its query, topic and partition.

Rules kept here:
- All rows of a batch go to one broker: to the broker that already has some of them, else to the one that the
  partition number selects. Nothing is sent before every broker has reported the state of the sequence.
- Rows are numbered in request order, which depends on the rows alone. Rows that the broker has are not sent
  again, and their digest has to match.
- Requests are pipelined, and the broker refuses one that leaves a gap. After a failure the broker is asked
  for the state of the sequence, and missing requests are sent again.
- Rows with a sharding key are spread over the queues of that broker, over as many as in the first attempt.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec
import numpy as np
from zlib_ng.zlib_ng import crc32

from cometmq.client.blocking.loop import background
from cometmq.client.producer.preencoded import PreencodedProducer
from cometmq.model.errors import ClientError, CometError, MessageError
from cometmq.model.names import DEFAULT_TOPIC
from cometmq.spark.retry import is_transient
from cometmq.spark.sink.at_least_once import no_such_queue
from cometmq.spark.sink.encode import Bytes, unique_ids
from cometmq.spark.sink.options import SinkOptions
from cometmq.spark.sink.requests import SEND, SinkRequest
from cometmq.spark.sink.worker_producer import MAX_IN_FLIGHT, retry_send
from cometmq.wire.exactly_once import (
    UNKNOWN_DIGEST,
    SendOnceRequest,
    SendOnceResponse,
    StandingRequest,
    StandingResponse,
)

_ID_PREFIX_BYTES: Final = 10
_NEW_TOPIC_QUEUES: Final = 4
_PAUSE_S: Final = 0.1


class WriteId(msgspec.Struct, frozen=True):
    """Identifies a write over all its attempts."""

    query: str
    batch: int
    partition: int


class _Sent(NamedTuple):
    header: SendOnceRequest
    body: memoryview | bytes
    answer: Future[SendOnceResponse]

    @property
    def end(self) -> int:
        return self.header.first_sequence + self.header.count


class WriterSequence:
    """The rows of one topic: numbers them and sends the rows that the broker lacks."""

    def __init__(
        self, producer: PreencodedProducer, options: SinkOptions, write: WriteId, topic: str
    ) -> None:
        self._producer = producer
        self._options = options
        self._write = write
        self._topic = topic
        ask = partial(producer.standings, topic, write.query, write.partition)
        standings = background().run(retry_send(ask, options))
        queues = background().run(producer.write_queues(topic))
        writable = {queue.broker_name for queue in queues} & standings.keys()
        self._broker, self._before = self._home(standings, sorted(writable))
        self._queues = [queue for queue in sorted(queues) if queue.broker_name == self._broker]
        self.shards = self._spread()
        self.takes_records = False  # the broker numbers batches, not records
        name = "\0".join((write.query, topic, str(write.batch), str(write.partition)))
        self._id_prefix = blake2b(name.encode(), digest_size=_ID_PREFIX_BYTES).digest()
        self._numbered = 0
        self._taken = 0
        self._digest = 0
        self._round_robin = write.partition
        self._in_flight: deque[_Sent] = deque()
        self._failing_since: float | None = None

    def _home(
        self, standings: Mapping[str, StandingResponse], writable: Sequence[str]
    ) -> tuple[str, StandingResponse | None]:
        """The broker of this sequence, and its state there for this batch or a later one."""
        batch = self._write.batch
        found = {name: each for name, each in standings.items() if each.batch >= batch}
        later = [name for name, each in found.items() if each.batch > batch]
        if later:
            return later[0], found[later[0]]
        if len(found) > 1:
            raise ClientError(
                f"batch {batch} of query {self._write.query}, partition {self._write.partition}, is in topic "
                f"{self._topic} at several brokers ({', '.join(found)}); it cannot be completed without doubt"
            )
        if found:
            return next(iter(found.items()))
        return writable[self._write.partition % len(writable)], None

    def _spread(self) -> int:
        before = self._before
        if before is not None and before.batch > self._write.batch:
            return max(before.shards, 1)
        wanted = len(self._queues) if before is None else before.shards
        if not self._queues or wanted > len(self._queues):
            raise ClientError(
                f"broker {self._broker} has {len(self._queues)} queues of topic {self._topic} to write to; "
                f"batch {self._write.batch} of query {self._write.query} needs {max(wanted, 1)} there"
            )
        return wanted

    def ids(self, count: int) -> Bytes | None:
        """Ids that are equal for equal rows in every attempt."""
        if not self._options.unique_keys:
            return None
        first = self._numbered
        self._numbered += count
        return unique_ids(self._id_prefix, np.arange(first, first + count))

    def send(self, request: SinkRequest, *, by_queue_id: bool) -> None:
        """Start to send what the broker lacks; raises the error of an earlier request."""
        first, before = self._taken, self._digest
        assert isinstance(request.body, bytes | memoryview)
        is_single = request.code == SEND
        content = request.properties.encode() + request.body if is_single else request.body
        self._taken, self._digest = first + request.rows, crc32(content, before)
        if not self._is_lacking():
            return
        write = self._write
        header = SendOnceRequest(
            producer_group=self._options.group,
            topic=self._topic,
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=_NEW_TOPIC_QUEUES,
            queue_id=self._queue_of(request.group, by_queue_id=by_queue_id),
            born_timestamp=time.time_ns() // 1_000_000,
            query=write.query,
            partition=write.partition,
            batch=write.batch,
            first_sequence=first,
            count=request.rows,
            digest_before=before,
            digest_after=self._digest,
            shards=self.shards,
            properties=request.properties,
            single=is_single,
        )
        self._begin(header, request.body)
        while len(self._in_flight) >= MAX_IN_FLIGHT:
            self._settle_oldest()

    def _queue_of(self, group: int | None, *, by_queue_id: bool) -> int:
        """The queue id that the rows ask for, else the next one round-robin."""
        if group is None:
            self._round_robin += 1
            return self._queues[self._round_robin % len(self._queues)].queue_id
        if not by_queue_id:
            return self._queues[group].queue_id
        if not any(queue.queue_id == group for queue in self._queues):
            raise no_such_queue(group, self._queues)
        return group

    def _is_lacking(self) -> bool:
        """Whether the broker lacks rows of this request; rows that it has must be the same."""
        before = self._before
        if before is None:
            return True
        if before.batch > self._write.batch:
            return False
        if self._taken == before.next_sequence and before.digest not in (UNKNOWN_DIGEST, self._digest):
            raise self._differs("has others, or another order")
        return self._taken > before.next_sequence

    def _differs(self, how: str) -> MessageError:
        before = self._before
        assert before is not None
        return MessageError(
            f"batch {self._write.batch} of query {self._write.query}, partition {self._write.partition}, has "
            f"{before.next_sequence} messages in topic {self._topic}, and this try {how}; the rows of a "
            "partition have to be the same whenever they are computed: sort them, and keep the number of "
            "partitions"
        )

    def _begin(self, header: SendOnceRequest, body: memoryview | bytes) -> None:
        answer = background().submit(self._producer.send_once(self._broker, header, body))
        self._in_flight.append(_Sent(header, body, answer))

    def _settle_oldest(self) -> None:
        """Wait for the oldest request; if it was not stored, send again what the broker lacks."""
        oldest = self._in_flight[0]
        try:
            answer = oldest.answer.result()
            failure: CometError | None = None
        except CometError as error:
            if not is_transient(error):
                raise
            failure = error
        if failure is None and self._is_stored(oldest, answer):
            self._in_flight.popleft()
            self._failing_since = None
            return
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        if failure is not None and (now - self._failing_since) * 1000 > self._options.retry_timeout_ms:
            raise failure
        self._resume(failure)

    def _is_stored(self, sent: _Sent, answer: StandingResponse) -> bool:
        return answer.batch > self._write.batch or (
            answer.batch == self._write.batch and answer.next_sequence >= sent.end
        )

    def _resume(self, failure: CometError | None) -> None:
        """Let all requests end, ask for the state of the sequence, and send the rest again."""
        waiting = list(self._in_flight)
        for sent in waiting:
            sent.answer.exception()  # the broker knows the outcome better
        self._in_flight.clear()
        standing = background().run(self._ask_again(failure))
        rest = [sent for sent in waiting if not self._is_stored(sent, standing)]
        if (
            rest
            and standing.batch == self._write.batch
            and standing.next_sequence < rest[0].header.first_sequence
        ):
            raise ClientError(
                f"broker {self._broker} has lost messages of topic {self._topic} that it had stored: "
                f"those from {standing.next_sequence} on are missing; the task has to begin anew"
            )
        for sent in rest:
            self._begin(sent.header, sent.body)

    async def _ask_again(self, failure: CometError | None) -> StandingResponse:
        write = self._write
        header = StandingRequest(topic=self._topic, query=write.query, partition=write.partition)
        ask = partial(self._producer.standing, self._broker, header)
        if failure is not None:
            await asyncio.sleep(_PAUSE_S)  # the cause may be over then
        try:
            return await retry_send(ask, self._options)
        except CometError as error:
            raise error from failure

    def finish(self) -> int:
        """Wait until everything is stored. Returns the number of rows that were there before."""
        while self._in_flight:
            self._settle_oldest()
        before = self._before
        if before is None:
            return 0
        if before.batch > self._write.batch:
            return self._taken
        if self._taken < before.next_sequence:
            raise self._differs(f"has {self._taken}")
        return before.next_sequence

    def abandon(self) -> None:
        for sent in self._in_flight:
            sent.answer.cancel()
        self._in_flight.clear()


class ExactlyOnceSends:
    """The sends of one task."""

    def __init__(
        self, producer: PreencodedProducer, options: SinkOptions, write: WriteId, *, by_queue_id: bool
    ) -> None:
        self._make = partial(WriterSequence, producer, options, write)
        self._by_queue_id = by_queue_id
        self._sequences: dict[str, WriterSequence] = {}

    def topic(self, name: str) -> WriterSequence:
        sequence = self._sequences.get(name)
        if sequence is None:
            sequence = self._sequences[name] = self._make(name)
        return sequence

    def send(self, request: SinkRequest) -> None:
        self.topic(request.topic).send(request, by_queue_id=self._by_queue_id)

    def finish(self) -> int:
        return sum(sequence.finish() for sequence in self._sequences.values())

    def abandon(self) -> None:
        for sequence in self._sequences.values():
            sequence.abandon()
