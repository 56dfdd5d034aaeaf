"""Our client under load, in a process of its own: `python -m bench.client.worker NAMESRV TOPIC WHAT ...`.

    send IN-FLIGHT SECONDS      awaited sends, so many at a time
    consume COUNT               that many messages that are already there, with an empty listener
    consume-blocking COUNT      with a plain function, which runs in the consumer's threads

It prints one JSON object: messages, seconds, and the sum of the consumed queue offsets, which proves that
every message came once. It is not the load of `cometmq bench`, which also takes a latency of every message
and would measure that, too.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time

from cometmq.aio import Message, Producer, PushConsumer
from cometmq.model.message import StoredMessage
from cometmq.remoting.loop import run
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere

BODY = bytes(range(128))
CONSUME_SECONDS = 120.0


async def send(namesrv: str, topic: str, in_flight: int, seconds: float) -> tuple[int, float]:
    message = Message(topic, BODY, tags="paid", keys=("order-1",))
    async with Producer("bench-producer", namesrv=namesrv) as producer:
        await producer.send(message)
        begun = time.perf_counter()
        end = begun + seconds

        async def send_on() -> int:
            sent = 0
            while time.perf_counter() < end:
                await producer.send(message)
                sent += 1
            return sent

        sent = sum(await asyncio.gather(*(send_on() for _ in range(in_flight))))
        return sent, time.perf_counter() - begun


class _Counter:
    """Counts messages; the first one starts the clock."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.offsets = 0
        self._begun = 0.0
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[float] = self._loop.create_future()

    def take(self, message: StoredMessage) -> None:
        self.offsets += message.queue_offset
        if not self._begun:
            self._begun = time.perf_counter()
        self._left -= 1
        if self._left == 0:
            seconds = time.perf_counter() - self._begun
            self._loop.call_soon_threadsafe(self.ended.set_result, seconds)


async def consume(namesrv: str, topic: str, count: int, *, blocking: bool) -> tuple[int, float, int]:
    counter = _Counter(count)

    async def listen(message: StoredMessage) -> None:
        counter.take(message)

    lock = threading.Lock()

    def listen_blocking(message: StoredMessage) -> None:
        with lock:
            counter.take(message)

    consumer = PushConsumer(
        f"bench-consumer-{time.time_ns()}",
        namesrv=namesrv,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    if blocking:
        consumer.subscribe(topic, listener=listen_blocking)
    else:
        consumer.subscribe(topic, listener=listen)
    await consumer.start()
    async with asyncio.timeout(CONSUME_SECONDS):
        seconds = await counter.ended
    await consumer.stop()
    return count, seconds, counter.offsets


def main(namesrv: str, topic: str, what: str, *numbers: str) -> None:
    offsets = 0
    if what == "send":
        done, seconds = run(send(namesrv, topic, int(numbers[0]), float(numbers[1])))
    else:
        blocking = what == "consume-blocking"
        done, seconds, offsets = run(consume(namesrv, topic, int(numbers[0]), blocking=blocking))
    print(json.dumps({"done": done, "seconds": seconds, "offsets": offsets}))


if __name__ == "__main__":
    main(*sys.argv[1:])
