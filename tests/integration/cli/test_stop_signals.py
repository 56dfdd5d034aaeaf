"""Several stop signals in a row: servers and consumers stop in good order, and say that they do."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cometmq import Admin, Message, Producer, StoredMessage
from cometmq.aio import PushConsumer
from cometmq.cli.servers.serving import serve
from cometmq.testing import EmbeddedBroker
from tests.waiting import PATIENCE_S, eventually, wait_until

log = logging.getLogger("test")


class SlowService:
    """Starts and stops when it is told to."""

    def __init__(self) -> None:
        self.may_start = asyncio.Event()
        self.may_stop = asyncio.Event()
        self.is_stopping = False
        self.ended = False

    async def start(self) -> None:
        await self.may_start.wait()

    async def stop(self) -> None:
        self.is_stopping = True
        await self.may_stop.wait()
        self.ended = True


async def test_a_server_that_gets_several_signals_stops_once_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = SlowService()
    serving = asyncio.create_task(serve(lambda: service, lambda _: None, log))
    await asyncio.sleep(0)
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGINT)
    await eventually(
        lambda: "still starting, and going to stop after that, since" in caplog.text, "it says so"
    )
    service.may_start.set()
    await eventually(lambda: service.is_stopping, "it stops")
    signal.raise_signal(signal.SIGTERM)
    await eventually(lambda: "stopping since " in caplog.text, "it says so")
    assert "kill -9 ends it at once, and the next start recovers" in caplog.text
    service.may_stop.set()
    assert await serving is service
    assert service.ended


async def test_a_consumer_on_an_event_loop_that_gets_several_signals_stops_once(
    rocketmq: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """C1."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    finished: list[bytes] = []
    consumer = PushConsumer("billing", namesrv=rocketmq.namesrv, consume_from_where="earliest")

    @consumer.subscribe("orders")
    async def bill(message: StoredMessage) -> None:
        begun.set()
        await go_on.wait()
        finished.append(message.body)

    await asyncio.to_thread(send_one, rocketmq)
    running = asyncio.create_task(consumer.run())
    await begun.wait()
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    said = "1 listener(s) are still running and get 30 s (stop_timeout_ms); then it commits and leaves"
    await eventually(lambda: said in caplog.text, "it says so")
    go_on.set()
    await running
    assert finished == [b"one"]


def send_one(rocketmq: EmbeddedBroker) -> None:
    with Producer("shop", namesrv=rocketmq.namesrv) as producer:
        producer.send(Message("orders", b"one"))


PROGRAM = """
import pathlib, sys, threading
from cometmq import PushConsumer

folder = pathlib.Path(sys.argv[2])
consumer = PushConsumer("billing", namesrv=sys.argv[1], consume_from_where="earliest")

@consumer.subscribe("orders")
def bill(message):
    (folder / "begun").touch()
    while not (folder / "go on").exists():
        threading.Event().wait(0.01)

consumer.run()
print("ended")
"""


def test_a_blocking_consumer_that_gets_several_signals_stops_once(
    rocketmq: EmbeddedBroker, tmp_path: Path
) -> None:
    """C1: and what its listener has finished is committed."""
    send_one(rocketmq)
    errors = tmp_path / "errors"
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, rocketmq.namesrv, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    try:
        wait_until((tmp_path / "begun").exists, "the listener has a message")
        process.send_signal(signal.SIGINT)
        said = "the consumer of group billing stops since"

        def press_again() -> bool:
            os.kill(process.pid, signal.SIGINT)
            return errors.read_text().count(said) >= 2

        wait_until(press_again, "it says so each time")
        (tmp_path / "go on").touch()
        out, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert (process.returncode, out) == (0, "ended\n")
    assert "Traceback" not in errors.read_text()
    with Admin(namesrv=rocketmq.namesrv) as admin:
        progress = [admin.consumer_offset("billing", queue) for queue in admin.queues("orders")]
    assert sum(offset or 0 for offset in progress) == 1
