"""Sends trace records in the background, many in one message.

Rules kept here:
- Handing over a record never waits, on any thread. At most `MAX_WAITING` records wait; further ones, and
  those that the broker does not take, are dropped and counted.
- Records leave when a message is full, after a second, and at the stop.
- They have a producer of their own, so that they never delay the application's messages.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections import deque
from typing import Final, Literal, Protocol

import msgspec

from cometmq.client.producer.sender import SendReceipt
from cometmq.client.producer.settings import ProducerSettings
from cometmq.client.settings import DEFAULT_INSTANCE_NAME, ClientSettings, common_settings
from cometmq.client.trace.records import TraceRecord, encode_record, keys_of
from cometmq.model.errors import CometError
from cometmq.model.message import Message
from cometmq.model.message_properties import is_blank
from cometmq.model.names import MAX_GROUP_LENGTH

log = logging.getLogger("cometmq.client")

MAX_WAITING: Final = 2048
MAX_RECORDS: Final = 100
MAX_BYTES: Final = 128_000
MAX_KEYS_LENGTH: Final = 16_000
"""The limits of a trace message: records, bytes, and bytes of keys; properties end at 32 KiB."""
FLUSH_S: Final = 1.0
SEND_TIMEOUT_MS: Final = 5_000
STOP_TIMEOUT_S: Final = 5.0

DispatcherType = Literal["PRODUCE", "CONSUME"]
_numbers = itertools.count(1)


class TraceProducer(Protocol):
    """Sends trace messages."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def send(self, message: Message, *, timeout_s: float | None = None) -> SendReceipt: ...


def trace_group(group: str, dispatcher_type: DispatcherType) -> str:
    """The group of the producer that sends the traces of a client."""
    beginning, end = "_INNER_TRACE_PRODUCER-", f"-{dispatcher_type}-{next(_numbers)}"
    return f"{beginning}{group[: MAX_GROUP_LENGTH - len(beginning) - len(end)]}{end}"


def trace_settings(settings: ClientSettings) -> ProducerSettings:
    """The settings of that producer: the same cluster, a client of its own."""
    common = msgspec.structs.asdict(common_settings(settings))
    common |= {"instance_name": DEFAULT_INSTANCE_NAME, "namespace": ""}
    return ProducerSettings(**common, send_timeout_ms=SEND_TIMEOUT_MS)


class TraceDispatcher:
    """Collects and sends the trace records of one client."""

    def __init__(self, producer: TraceProducer, topic: str) -> None:
        self.topic = topic
        self.dropped = 0
        """The number of lost records."""
        self._counting = threading.Lock()
        self._producer = producer
        self._waiting: deque[TraceRecord] = deque()
        self._full = asyncio.Event()
        self._told = False
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self) -> None:
        await self._producer.start()
        self._task = self._loop.create_task(self._run())

    async def stop(self) -> None:
        """Send waiting records for a short while, and end."""
        self._stopping = True
        self._full.set()
        if self._task is not None:
            _, late = await asyncio.wait([self._task], timeout=STOP_TIMEOUT_S)
            for task in late:
                task.cancel()
                await asyncio.wait(late)
        await self._producer.stop()
        self._drop(len(self._waiting))
        self._waiting.clear()
        if self.dropped:
            log.warning("%d records of message traces were dropped", self.dropped)

    def append(self, record: TraceRecord) -> None:
        """Have a record sent; any thread may call this."""
        waiting = len(self._waiting)
        if waiting >= MAX_WAITING or self._stopping:
            self._drop(1)
            return
        self._waiting.append(record)
        if waiting >= MAX_RECORDS and not self._told:
            self._told = True
            self._loop.call_soon_threadsafe(self._full.set)

    async def _run(self) -> None:
        while not self._stopping:
            try:
                async with asyncio.timeout(FLUSH_S):
                    await self._full.wait()
            except TimeoutError:
                pass
            self._full.clear()
            self._told = False
            await self._flush()
        await self._flush()

    async def _flush(self) -> None:
        while self._waiting:
            count = 0
            try:
                message, count = self._next_message()
                await self._producer.send(message)
            except CometError as error:
                self._drop(count)
                log.info("%d records of message traces were not sent: %s", count, error)
            except Exception:
                self._drop(count)
                log.exception("%d records of message traces were not sent", count)

    def _next_message(self) -> tuple[Message, int]:
        """The waiting records, as many as fit into a message."""
        waiting = self._waiting
        parts: list[str] = []
        keys: dict[str, None] = {}
        length = keys_length = 0
        while waiting and len(parts) < MAX_RECORDS:
            record = waiting[0]
            text = encode_record(record)
            new = {key: len(key.encode()) + 1 for key in keys_of(record) if key not in keys}
            new_length = sum(new.values())
            if parts and (length + len(text) > MAX_BYTES or keys_length + new_length > MAX_KEYS_LENGTH):
                break
            waiting.popleft()
            parts.append(text)
            length += len(text)
            for (
                key,
                key_length,
            ) in new.items():  # only the keys of a first record can be too long for a message
                if keys_length + key_length <= MAX_KEYS_LENGTH and not is_blank(key):
                    keys[key] = None
                    keys_length += key_length
        return Message(self.topic, "".join(parts).encode(), keys=tuple(keys)), len(parts)

    def _drop(self, count: int) -> None:
        with self._counting:
            self.dropped += count
