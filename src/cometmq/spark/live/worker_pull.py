"""Reading ranges of queues on a Spark worker: pulls in, bytes of records out, in the order of the offsets.

Rules kept here:
- A range is read in chunks, several at a time, so that broker and worker work side by side; what they bring
  is handed out in order. The first chunk may always go on; the others wait while too much is held.
- A broker that goes away is waited for, as long as the query allows, and reading goes on where it stopped.
- Every offset of a range is either handed out, filtered out by the broker, or reported as lost.
- A process keeps its connections for its next task. They live on an event loop that runs only while a task
  waits for it.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import suppress
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
from cometmq.spark.retry import is_passing
from cometmq.wire.codes import ResponseCode
from cometmq.wire.frame.command import Body

T = TypeVar("T")

CHUNK: Final = 4096
"""The offsets of a chunk, and the most messages of a pull; brokers other than ours give 32 of them."""
CHUNKS_AT_ONCE: Final = 4
MAX_HELD_BYTES: Final = 32 * 1024 * 1024
"""With this much held, only the first chunk goes on."""
ENOUGH_MESSAGES: Final = 4096
ENOUGH_BYTES: Final = 4 * 1024 * 1024
"""So much makes a batch."""
_MAX_CLIENTS: Final = 4
_PULL_TIMEOUT_S: Final = 10.0
_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 1.0
_STUCK_WAIT_S: Final = 0.2
_CERTAIN_AFTER_S: Final = 2.0
"""A broker that has less than it had may be about to recover it; after this long it has lost it."""


class Piece(msgspec.Struct, frozen=True, gc=False):
    """Records of one queue, as they came."""

    queue: MessageQueue
    body: Body
    count: int
    """How many offsets it stands for."""
    end: int
    """Records from this offset on are not wanted."""
    delta: int
    """What has to be added to the offsets in the records."""


class WorkerClient:
    """The connections of a worker process to one cluster."""

    def __init__(self, settings: ClientSettings) -> None:
        self._loop = loop_factory()()
        self.instance = self.run(self._make(settings))

    async def _make(self, settings: ClientSettings) -> ClientInstance:
        return ClientInstance(client_id(settings), settings)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the event loop until something is done."""
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        self.run(self.instance.stop())
        self._loop.close()


_clients: dict[bytes, WorkerClient] = {}
os.register_at_fork(after_in_child=_clients.clear)


def worker_client(settings: ClientSettings) -> WorkerClient:
    """The client of this process for a cluster, made when it is first asked for."""
    key = msgspec.json.encode(settings)
    client = _clients.get(key)
    if client is None:
        if len(_clients) >= _MAX_CLIENTS:
            _clients.pop(next(iter(_clients))).close()
        client = _clients[key] = WorkerClient(settings)
    return client


class _Chunk:
    """A part of a range, and what was read of it so far."""

    __slots__ = ("came", "end", "pieces", "queue", "start", "task")

    def __init__(self, queue: MessageQueue, start: int, end: int) -> None:
        self.queue = queue
        self.start = start
        self.end = end
        self.pieces: deque[Piece] = deque()
        self.came = asyncio.Event()
        """Set when there is something, or the end of it."""
        self.task: asyncio.Task[None]

    def ended(self, _: asyncio.Task[None]) -> None:
        self.came.set()


def _chunks(ranges: Sequence[QueueRange]) -> Iterator[_Chunk]:
    for each in ranges:
        for start in range(each.start, each.end, CHUNK):
            yield _Chunk(each.queue, start, min(start + CHUNK, each.end))


class Feeder:
    """Reads the ranges of a partition ahead of who asks for them."""

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

    async def next(self) -> list[Piece]:
        """The next pieces, of one broker, enough for a batch; none at the end."""
        pieces: list[Piece] = []
        messages = size = 0
        while messages < ENOUGH_MESSAGES and size < ENOUGH_BYTES:
            self._start_more()
            if not self._running:
                break
            head = self._running[0]
            while not head.pieces and not head.task.done():
                head.came.clear()
                await head.came.wait()
            if not head.pieces:
                head.task.result()
                self._running.popleft()
                self._room.set()
                continue
            piece = head.pieces[0]
            if pieces and not _go_together(pieces[0], piece):
                break
            head.pieces.popleft()
            pieces.append(piece)
            messages += piece.count
            size += len(piece.body)
            self._held_bytes -= len(piece.body)
            self._room.set()
        return pieces

    async def stop(self) -> None:
        """Read no more."""
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
                continue  # somebody moved the group, which does not move the query; it is said once
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
                raise self._no_patience(chunk.queue, offset, raw.status or "no reason given")
            await asyncio.sleep(_STUCK_WAIT_S)

    def _take(self, chunk: _Chunk, raw: RawPull, offset: int) -> None:
        count = min(raw.next_offset, chunk.end) - offset
        chunk.pieces.append(Piece(chunk.queue, raw.body, count, chunk.end, raw.offset_delta))
        self._held_bytes += len(raw.body)
        chunk.came.set()

    def _lose(self, queue: MessageQueue, first: int, behind: int, raw: RawPull) -> None:
        has = raw.min_offset, raw.max_offset
        report_loss(queue, first, behind, has, fail_on_data_loss=self._options.fail_on_data_loss)

    async def _pull(self, queue: MessageQueue, offset: int, count: int) -> RawPull:
        """Pull, for as long as it takes within the query's patience."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.poll_timeout_s
        wait_s = _FIRST_WAIT_S
        while True:
            try:
                return await self._pulls.pull_raw(
                    queue,
                    self._subscriptions[queue.topic],
                    offset,
                    count,
                    kind=PullKind.PULL,
                    timeout_s=_PULL_TIMEOUT_S,
                    bulk=True,
                )
            except CometError as error:
                if not is_passing(error):
                    raise
                if loop.time() + wait_s > deadline:
                    raise self._no_patience(queue, offset, error) from error
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
            with suppress(CometError):
                await self._routes.refresh(queue.topic)

    def _no_patience(self, queue: MessageQueue, offset: int, why: object) -> ClientError:
        return ClientError(
            f"{queue} could not be read at offset {offset} for {self._options.poll_timeout_s:.0f} s: {why}. "
            "Bring its broker back, or raise pollTimeoutMs"
        )


_FILTERED: Final = "NO_MATCHED_MESSAGE"
"""What brokers say when they looked at messages and none was wanted."""
_RESET: Final = "OFFSET_RESET"
"""What brokers say once to a group whose offset was set from outside."""


def _go_together(one: Piece, other: Piece) -> bool:
    """Whether the records of two pieces can be in one batch."""
    return one.queue.broker_name == other.queue.broker_name and one.delta == other.delta
