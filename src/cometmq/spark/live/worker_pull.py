"""Pulling ranges of queues on a Spark worker: encoded records in offset order.

Rules kept here:
- A range is read in chunks, `CHUNKS_AT_ONCE` at a time, so that broker and worker overlap; results come in
  order. Above `MAX_HELD_BYTES` only the first chunk continues.
- If a broker is unavailable, reading waits up to `pollTimeoutMs` and then continues at the same offset.
- Every offset of a range is returned, filtered out by the broker, or reported as lost.
- The clients of a process live on an event loop that runs only while a task waits for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from cometmq.client.consumer.broker_calls import BrokerCalls
from cometmq.client.consumer.pull_request import PullKind, PullRequests, RawPull
from cometmq.client.instance.identity import client_id
from cometmq.client.instance.instance import ClientInstance
from cometmq.client.settings import ClientSettings
from cometmq.client.subscription import subscription_of
from cometmq.model.errors import ClientError, CometError
from cometmq.model.queue import MessageQueue
from cometmq.remoting.loop import loop_factory
from cometmq.spark.live.data_loss import report_loss
from cometmq.spark.live.options import LiveOptions
from cometmq.spark.live.partitions import QueueRange
from cometmq.spark.process_cache import ProcessCache
from cometmq.spark.retry import is_transient, retry
from cometmq.wire.codes import ResponseCode
from cometmq.wire.frame.command import Body

T = TypeVar("T")

CHUNK: Final = 4096
"""Offsets per chunk and messages per pull; brokers other than CometMQ return at most 32."""
CHUNKS_AT_ONCE: Final = 4
MAX_HELD_BYTES: Final = 32 * 1024 * 1024
BATCH_MESSAGES: Final = 4096
BATCH_BYTES: Final = 4 * 1024 * 1024
"""A batch is complete when it reaches one of the two."""
_PULL_TIMEOUT_S: Final = 10.0
_STUCK_WAIT_S: Final = 0.2
_CERTAIN_AFTER_S: Final = 2.0
"""A broker with fewer messages than before may still be recovering; after this time they count as lost."""


class PulledRecords(msgspec.Struct, frozen=True, gc=False):
    """The records of one pull."""

    queue: MessageQueue
    body: Body
    count: int
    """The number of offsets covered, including filtered messages."""
    end: int
    """Records from this offset on are not wanted."""
    delta: int
    """To be added to the queue offsets in the records."""


class WorkerClient:
    """The connections of a worker process to one cluster."""

    def __init__(self, settings: ClientSettings) -> None:
        self._loop = loop_factory()()
        self.instance = self.run(self._make(settings))

    async def _make(self, settings: ClientSettings) -> ClientInstance:
        return ClientInstance(client_id(settings), settings)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the event loop until the work is done."""
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        self.run(self.instance.stop())
        self._loop.close()


worker_clients: Final = ProcessCache(WorkerClient.close)


def worker_client(settings: ClientSettings) -> WorkerClient:
    """The client of this process for a cluster."""
    return worker_clients.get(settings, partial(WorkerClient, settings))


@dataclass(slots=True, eq=False)
class _Chunk:
    """A part of a range, and the pulls that are not handed out yet."""

    queue: MessageQueue
    start: int
    end: int
    pulls: deque[PulledRecords] = field(default_factory=deque)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by a new pull, and at the end of the task."""
    task: asyncio.Task[None] = field(init=False)

    def ended(self, _: asyncio.Task[None]) -> None:
        self.changed.set()


def _chunks(ranges: Sequence[QueueRange]) -> Iterator[_Chunk]:
    for each in ranges:
        for start in range(each.start, each.end, CHUNK):
            yield _Chunk(each.queue, start, min(start + CHUNK, each.end))


class PrefetchingPuller:
    """Reads the ranges of a partition ahead of the decoder."""

    def __init__(self, instance: ClientInstance, options: LiveOptions, ranges: Sequence[QueueRange]) -> None:
        self._options = options
        self._routes = instance.routes
        self._pulls = PullRequests(instance, BrokerCalls(instance), options.reading_group)
        self._subscriptions = {
            each.queue.topic: subscription_of(each.queue.topic, options.expression, 0) for each in ranges
        }
        self._waiting = _chunks(ranges)
        self._running: deque[_Chunk] = deque()
        self._held_bytes = 0
        self._room = asyncio.Event()

    async def next(self) -> list[PulledRecords]:
        """The next pulls of one broker, enough for a batch; empty at the end."""
        pulls: list[PulledRecords] = []
        messages = size = 0
        while messages < BATCH_MESSAGES and size < BATCH_BYTES:
            self._start_more()
            if not self._running:
                break
            head = self._running[0]
            while not head.pulls and not head.task.done():
                head.changed.clear()
                await head.changed.wait()
            if not head.pulls:
                head.task.result()
                self._running.popleft()
                self._room.set()
                continue
            pull = head.pulls[0]
            if pulls and not _fit_one_batch(pulls[0], pull):
                break
            head.pulls.popleft()
            pulls.append(pull)
            messages += pull.count
            size += len(pull.body)
            self._held_bytes -= len(pull.body)
            self._room.set()
        return pulls

    async def stop(self) -> None:
        tasks = [chunk.task for chunk in self._running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start_more(self) -> None:
        while len(self._running) < CHUNKS_AT_ONCE:
            chunk = next(self._waiting, None)
            if chunk is None:
                return
            self._running.append(chunk)
            chunk.task = asyncio.get_running_loop().create_task(self._read(chunk))
            chunk.task.add_done_callback(chunk.ended)

    async def _read(self, chunk: _Chunk) -> None:
        offset = chunk.start
        stuck_since: float | None = None
        while offset < chunk.end:
            while self._held_bytes > MAX_HELD_BYTES and self._running[0] is not chunk:
                self._room.clear()
                await self._room.wait()
            raw = await self._pull(chunk.queue, offset, chunk.end - offset)
            if raw.status == _RESET:
                continue  # the group was reset, which does not move the query; brokers say so once
            if raw.next_offset > offset:
                if raw.code == ResponseCode.SUCCESS:
                    self._take(chunk, raw, offset)
                elif raw.status != _FILTERED:
                    self._lose(chunk.queue, offset, min(raw.next_offset, chunk.end), raw)
                offset, stuck_since = raw.next_offset, None
                continue
            now = asyncio.get_running_loop().time()
            stuck_since = stuck_since or now
            if raw.max_offset <= offset and now - stuck_since > _CERTAIN_AFTER_S:
                self._lose(chunk.queue, offset, chunk.end, raw)
                return
            if now - stuck_since > self._options.poll_timeout_s:
                raise self._timed_out(chunk.queue, offset, raw.status or "no reason given")
            await asyncio.sleep(_STUCK_WAIT_S)

    def _take(self, chunk: _Chunk, raw: RawPull, offset: int) -> None:
        count = min(raw.next_offset, chunk.end) - offset
        chunk.pulls.append(PulledRecords(chunk.queue, raw.body, count, chunk.end, raw.offset_delta))
        self._held_bytes += len(raw.body)
        chunk.changed.set()

    def _lose(self, queue: MessageQueue, first: int, end: int, raw: RawPull) -> None:
        has = raw.min_offset, raw.max_offset
        report_loss(queue, first, end, has, fail_on_data_loss=self._options.fail_on_data_loss)

    async def _pull(self, queue: MessageQueue, offset: int, count: int) -> RawPull:
        pull = partial(
            self._pulls.pull_raw,
            queue,
            self._subscriptions[queue.topic],
            offset,
            count,
            kind=PullKind.PULL,
            timeout_s=_PULL_TIMEOUT_S,
            bulk=True,
        )
        try:
            timeout_s, find_broker = self._options.poll_timeout_s, partial(self._routes.refresh, queue.topic)
            return await retry(pull, timeout_s, recover=find_broker)
        except CometError as error:
            if not is_transient(error):
                raise
            raise self._timed_out(queue, offset, error) from error

    def _timed_out(self, queue: MessageQueue, offset: int, why: object) -> ClientError:
        return ClientError(
            f"{queue} could not be read at offset {offset} for {self._options.poll_timeout_s:.0f} s: {why}. "
            "Bring its broker back, or raise pollTimeoutMs"
        )


_FILTERED: Final = "NO_MATCHED_MESSAGE"
"""The answer of a broker that filtered all messages out."""
_RESET: Final = "OFFSET_RESET"
"""The answer that a group gets once after its offset was reset."""


def _fit_one_batch(one: PulledRecords, other: PulledRecords) -> bool:
    return one.queue.broker_name == other.queue.broker_name and one.delta == other.delta
