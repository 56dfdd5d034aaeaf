"""The C++ client's binding for Python under load: the peer of `worker`, with the same arguments.

    python peer_worker.py NAMESRV TOPIC send IN-FLIGHT SECONDS
    python peer_worker.py NAMESRV TOPIC consume COUNT

With one in flight it sends synchronously, else asynchronously, a callback making room for the next.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from rocketmq.client import Message, Producer, PushConsumer  # type: ignore[import-not-found]

BODY = b"x" * 128
CONSUME_SECONDS = 120.0
# Its clients stay referenced to the end: the library may abort the process when one is destroyed.
CLIENTS: list[Any] = []


def send(namesrv: str, topic: str, in_flight: int, seconds: float) -> tuple[int, float]:
    producer = Producer("bench-producer")
    CLIENTS.append(producer)
    producer.set_namesrv_addr(namesrv)
    producer.start()
    producer.send_sync(_message(topic))
    begun = time.perf_counter()
    end = begun + seconds
    sent = 0
    if in_flight == 1:
        while time.perf_counter() < end:
            producer.send_sync(_message(topic))
            sent += 1
        return sent, time.perf_counter() - begun
    room = threading.Semaphore(in_flight)
    failures: list[Any] = []
    while time.perf_counter() < end:
        room.acquire()
        producer.send_async(_message(topic), lambda _: room.release(), failures.append)
        sent += 1
    for _ in range(in_flight):
        if not room.acquire(timeout=10):
            raise RuntimeError(f"answers are missing; failures: {failures[:3]}")
    return sent, time.perf_counter() - begun


def _message(topic: str) -> Any:
    message = Message(topic)
    message.set_body(BODY)
    message.set_tags("paid")
    message.set_keys("order-1")
    return message


def consume(namesrv: str, topic: str, count: int) -> tuple[int, float, int]:
    moments: list[float] = []
    offsets: list[int] = []
    ended = threading.Event()

    def listen(message: Any) -> None:
        offsets.append(message.queue_offset)
        moments.append(time.perf_counter())
        if len(moments) >= count:
            ended.set()

    consumer = PushConsumer(f"bench-consumer-{time.time_ns()}")
    CLIENTS.append(consumer)
    consumer.set_namesrv_addr(namesrv)
    consumer.subscribe(topic, listen)
    consumer.start()
    if not ended.wait(CONSUME_SECONDS):
        raise RuntimeError(f"{len(moments)} of {count} messages came")
    return count, moments[count - 1] - moments[0], sum(offsets)


def main(namesrv: str, topic: str, what: str, *numbers: str) -> None:
    # The library prints to standard output too.
    console = os.dup(1)
    os.dup2(2, 1)
    offsets = 0
    if what == "send":
        done, seconds = send(namesrv, topic, int(numbers[0]), float(numbers[1]))
    else:
        done, seconds, offsets = consume(namesrv, topic, int(numbers[0]))
    os.write(console, json.dumps({"done": done, "seconds": seconds, "offsets": offsets}).encode())
    # Its threads wait for each other at an orderly end.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
