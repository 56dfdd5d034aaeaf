"""CometMQ end to end, in a short while: name server, broker, producers, consumers, a crash, Spark, the files.

Run it with `make quickstart`. It starts a real standalone system in a process of its own, on free ports and
with its data in a temporary folder, and leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cometmq import Admin, ConsumeContext, Message, Producer, PushConsumer, StoredMessage, aio
from cometmq.model.errors import SettingsError
from cometmq.remoting.loop import run
from cometmq.spark.pipelines.run.session import Place, check_needs, spark_session

ORDERS = 1_000
MANY = 30_000
IN_FLIGHT = 64
PATIENCE_S = 30.0


def step(text: str) -> None:
    print(f"\n\033[1m▸ {text}\033[0m" if sys.stdout.isatty() else f"\n> {text}")


class System:
    """`cometmq standalone` in a process of its own."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.process: subprocess.Popen[str]
        self.namesrv = ""
        self._ports = ("0", "0")

    def start(self) -> None:
        began = time.perf_counter()
        options = ["--data", str(self._data), "--namesrv-port", self._ports[0], "--port", self._ports[1]]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cometmq.cli.main", "standalone", "--json", *options],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the system did not start; its message is above")
        ready = json.loads(line)
        self.namesrv = ready["namesrv"]
        broker = ready["brokers"][0]
        # The same ports again after a restart: clients look for the system where it was.
        self._ports = (self.namesrv.rpartition(":")[2], broker.rpartition(":")[2])
        taken_ms = (time.perf_counter() - began) * 1000
        print(f"  name server {self.namesrv}, broker {broker}, ready after {taken_ms:.0f} ms")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate()
        print(f"  stopped with exit code {self.process.returncode}")


@contextmanager
def standalone(data: Path) -> Iterator[System]:
    system = System(data)
    system.start()
    try:
        yield system
    finally:
        if system.process.poll() is None:
            system.stop()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not happen within {PATIENCE_S:.0f} s")
        time.sleep(0.005)


def send_orders(namesrv: str) -> None:
    with Producer("shop", namesrv=namesrv) as producer:
        began = time.perf_counter()
        for number in range(ORDERS):
            tags = "refunded" if number % 10 == 0 else "paid"
            receipt = producer.send(
                Message("orders", b"order %d" % number, tags=tags, keys=[f"order-{number}"])
            )
        taken = time.perf_counter() - began
    print(f"  {ORDERS} orders sent one after the other, {ORDERS / taken:,.0f} a second")
    print(f"  the last one: {receipt.status.value}, queue {receipt.queue}, offset {receipt.queue_offset}")


class Billing:
    """A group that bills orders; one of them fails at first."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.attempts: dict[str, int] = {}
        self._lock = threading.Lock()

    def bill(self, message: StoredMessage, context: ConsumeContext) -> None:
        key = message.keys[0]
        with self._lock:
            self.attempts[key] = self.attempts.get(key, 0) + 1
            if key == "order-7" and self.attempts[key] == 1:
                context.delay_level = 1  # again in a second; without it, in ten, then in thirty, and so on
                raise RuntimeError("the bank is busy")
            self.seen[message.tags or ""] += 1


def consume_orders(namesrv: str) -> None:
    billing = Billing()
    consumer = PushConsumer("billing", namesrv=namesrv)
    consumer.subscribe("orders", "paid || refunded", listener=billing.bill)
    with quiet_log(), consumer:
        began = time.perf_counter()
        wait_for(lambda: billing.seen.total() == ORDERS, "billing all orders")
        taken = time.perf_counter() - began
    print(f"  billed in {taken:.1f} s: {billing.seen['paid']} paid, {billing.seen['refunded']} refunded")
    print(f"  order-7 failed once and came back: {billing.attempts['order-7']} attempts")


@contextmanager
def quiet_log() -> Iterator[None]:
    """The failure of order-7 is meant; its trace would only puzzle."""
    import logging

    logger = logging.getLogger("cometmq.client")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def find_one(namesrv: str) -> None:
    with Admin(namesrv=namesrv) as admin:
        (message,) = admin.query_messages("orders", "order-42")
        print(f"  order-42: {message.body.decode()!r} in {message.queue} at offset {message.queue_offset}")


async def many(namesrv: str) -> None:
    """As much as one Python process sends and consumes."""
    consumed = 0
    done = asyncio.Event()

    async def count(_: StoredMessage) -> None:
        nonlocal consumed
        consumed += 1
        if consumed == MANY:
            done.set()

    async with aio.Producer("load", namesrv=namesrv) as producer:
        message = Message("clicks", b"x" * 128)

        async def some() -> None:
            for _ in range(MANY // IN_FLIGHT):
                await producer.send(message)

        began = time.perf_counter()
        await asyncio.gather(*(some() for _ in range(IN_FLIGHT)))
        for _ in range(MANY % IN_FLIGHT):
            await producer.send(message)
        taken = time.perf_counter() - began
        print(f"  {MANY} sends, {IN_FLIGHT} at a time, each acknowledged: {MANY / taken:,.0f} a second")
    consumer = aio.PushConsumer("counting", namesrv=namesrv)
    consumer.subscribe("clicks", listener=count)
    began = time.perf_counter()
    async with consumer, asyncio.timeout(PATIENCE_S):
        await done.wait()
        taken = time.perf_counter() - began
    print(f"  {consumed} consumed in {taken:.1f} s, from start to last")


def crash(system: System) -> None:
    system.kill()
    print("  killed with SIGKILL; starting again on the same folder")
    system.start()
    with Admin(namesrv=system.namesrv) as admin:
        wait_for(lambda: admin.topic_route("orders") is not None, "the route of the topic")
        stored = sum(status.max_offset for status in admin.topic_status("orders").values())
        print(f"  {stored} of {ORDERS} orders are there")


def stream(namesrv: str, home: Path) -> None:
    """The orders as a stream of Spark: everything that there is, then it ends."""
    try:
        check_needs()
    except SettingsError as error:
        print(f"  left out: {error}")
        return
    from cometmq.spark.pipelines.run.streams import run_stream  # needs PySpark

    with spark_session(Place("quickstart", "local[2]")) as spark:
        options = {"namesrvAddr": namesrv, "topic": "orders", "startingOffsets": "earliest"}
        orders = spark.readStream.format("rocketmq").options(**options, group="spark").load()
        counting = (
            orders.groupBy("topic", "tags")
            .count()
            .writeStream.format("memory")
            .queryName("counted")
            .outputMode("complete")
            .option("checkpointLocation", str(home / "checkpoint"))
            .trigger(availableNow=True)
        )
        done = run_stream(counting)
        print(f"  {done.rows} messages, {done.waiting} still waiting")
        spark.table("counted").orderBy("tags").show()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="cometmq-quickstart-") as home:
        data = Path(home, "data")
        step("A standalone system starts: cometmq standalone --data DIR")
        with standalone(data) as system:
            step("A producer sends orders; the topic is made with the first one")
            send_orders(system.namesrv)
            step("A consumer group bills them; one listener call fails and is repeated")
            consume_orders(system.namesrv)
            step("A message is found again by its key")
            find_one(system.namesrv)
            step("How quick is it from Python?")
            run(many(system.namesrv))
            step("The process dies, and nothing that was acknowledged is gone")
            crash(system)
            step("The orders are a stream of Spark, and a table")
            stream(system.namesrv, Path(home))
            step("Everything stops in order")
        step("What is in the folder: cometmq store inspect DIR/broker-0")
        subprocess.run(
            [sys.executable, "-m", "cometmq.cli.main", "store", "inspect", str(data / "broker-0")], check=True
        )
    print(
        "\nTry next:\n"
        "  .venv/bin/cometmq standalone                   a system on ports 9876 and 10911, for any client\n"
        "  .venv/bin/python examples/produce.py           a producer of ten lines\n"
        "  .venv/bin/python examples/consume.py           its consumer\n"
        "  .venv/bin/python examples/spark_stream.py      orders counted by Spark as they come\n"
        "  .venv/bin/cometmq broker -p                    every setting of a broker, and where it came from\n"
        "  make compat                                    Apache's Java clients and others on this broker"
    )


if __name__ == "__main__":
    main()
