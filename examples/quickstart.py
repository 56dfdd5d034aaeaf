"""CometMQ end to end, in a few seconds: a name server, brokers that announce themselves, a store.

Run it with `make quickstart`. It starts a real name server in a process of its own, on a free port and with
its state in a temporary folder, and leaves nothing behind. The two "brokers" here only announce themselves,
as a RocketMQ broker does; a client looks up what they announced.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import store_tour
from cometmq.model.topic import DataVersion, TopicConfig
from cometmq.remoting.client import RemotingClient
from cometmq.remoting.loop import run
from cometmq.wire.bodies.registration import encode_registration
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.namesrv import (
    GetKVConfigRequest,
    GetKVConfigResponse,
    GetRouteInfoRequest,
    PutKVConfigRequest,
    RegisterBrokerRequest,
)

LOOK_UPS = 5_000
IN_FLIGHT = 64


def step(text: str) -> None:
    print(f"\n\033[1m▸ {text}\033[0m" if sys.stdout.isatty() else f"\n> {text}")


@contextmanager
def name_server(home: str) -> Iterator[str]:
    """A running name server; gives its address."""
    command = [
        sys.executable,
        "-m",
        "cometmq.cli.main",
        "namesrv",
        "--json",
        "--bind",
        "127.0.0.1",
        "--port",
        "0",
    ]
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--log-level", "warning"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": home},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit("the name server did not start; its message is above")
        ready = json.loads(line)
        taken_ms = (time.perf_counter() - began) * 1000
        print(f"  ready on port {ready['port']} after {taken_ms:.0f} ms, process {ready['pid']}")
        yield f"127.0.0.1:{ready['port']}"
    finally:
        process.terminate()
        process.communicate()
        print(f"  name server stopped with exit code {process.returncode}")


async def announce(broker: RemotingClient, namesrv: str, name: str, port: int, topics: list[str]) -> None:
    """Register as a RocketMQ broker does: who it is, and its topics."""
    await broker.call_ok(
        namesrv,
        RequestCode.REGISTER_BROKER,
        RegisterBrokerRequest(
            cluster_name="DefaultCluster",
            broker_name=name,
            broker_addr=f"127.0.0.1:{port}",
            broker_id=0,
            ha_server_addr=f"127.0.0.1:{port + 1}",
            enable_acting_master=False,
        ),
        body=encode_registration(
            [TopicConfig(topic, read_queue_nums=4, write_queue_nums=4) for topic in topics],
            DataVersion(timestamp=1, counter=1),
        ),
    )
    print(f"  {name} registered {', '.join(topics)}")


async def show_route(client: RemotingClient, namesrv: str, topic: str) -> None:
    answer = await client.call(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic=topic))
    if answer.code != ResponseCode.SUCCESS:
        print(f"  {topic}: {(answer.remark or '').splitlines()[0]}")
        return
    route = json.loads(bytes(answer.body))
    addresses = {broker["brokerName"]: broker["brokerAddrs"]["0"] for broker in route["brokerDatas"]}
    for queues in route["queueDatas"]:
        name = queues["brokerName"]
        print(f"  {topic}: {queues['readQueueNums']} queues on {name} at {addresses[name]}")


async def look_up_many(client: RemotingClient, namesrv: str, topic: str) -> None:
    header = GetRouteInfoRequest(topic=topic)

    async def some() -> None:
        for _ in range(LOOK_UPS // IN_FLIGHT):
            await client.call_ok(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)

    began = time.perf_counter()
    await asyncio.gather(*(some() for _ in range(IN_FLIGHT)))
    taken = time.perf_counter() - began
    done = LOOK_UPS // IN_FLIGHT * IN_FLIGHT
    print(f"  {done} look-ups in {taken:.2f} s from this Python client: {done / taken:,.0f} a second")


async def until_gone(client: RemotingClient, namesrv: str, topic: str) -> float:
    """How many milliseconds it takes until a topic has no route any more."""
    began = time.perf_counter()
    while True:
        answer = await client.call(
            namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic=topic)
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return (time.perf_counter() - began) * 1000


async def tour(namesrv: str) -> None:
    client, broker_a, broker_b = RemotingClient(), RemotingClient(), RemotingClient()
    try:
        step("Two brokers announce themselves and their topics")
        await announce(broker_a, namesrv, "broker-a", 10911, ["orders", "payments"])
        await announce(broker_b, namesrv, "broker-b", 20911, ["orders", "shipments"])
        step("A client asks for the way to its topics")
        for topic in ("orders", "shipments", "nowhere"):
            await show_route(client, namesrv, topic)
        step("An operator keeps a value in the name server; it is on disk before the answer")
        put = PutKVConfigRequest(namespace="ORDER_TOPIC_CONFIG", key="orders", value="broker-a:4;broker-b:4")
        await client.call_ok(namesrv, RequestCode.PUT_KV_CONFIG, put)
        get = GetKVConfigRequest(namespace="ORDER_TOPIC_CONFIG", key="orders")
        answer = await client.call_ok(namesrv, RequestCode.GET_KV_CONFIG, get)
        print(f"  ORDER_TOPIC_CONFIG orders = {answer.header(GetKVConfigResponse).value}")
        step("How quick is a look-up?")
        await look_up_many(client, namesrv, "orders")
        step("A broker dies: its connection breaks, and its routes leave at once")
        await broker_b.stop()
        print(f"  shipments left after {await until_gone(client, namesrv, 'shipments'):.1f} ms")
        await show_route(client, namesrv, "orders")
    finally:
        for each in (client, broker_a, broker_b):
            await each.stop()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="cometmq-quickstart-") as home:
        step("A name server starts: cometmq namesrv --port 0")
        with name_server(home) as namesrv:
            run(tour(namesrv))
            step("Everything stops in order")
        step("A store takes messages with synchronous flush; its process ends without a word; we recover it")
        store_tour.show(Path(home, "store"))
    print(
        "\nTry next:\n"
        "  .venv/bin/cometmq namesrv           a name server on port 9876, for any RocketMQ broker\n"
        "  .venv/bin/cometmq namesrv --help    every option, with examples\n"
        "  .venv/bin/cometmq namesrv -p        the settings in force, and where each came from\n"
        "  .venv/bin/cometmq store --help      look at, verify, print and rebuild a store directory\n"
        "  make compat                         Apache's own broker, clients and mqadmin on this name server"
    )


if __name__ == "__main__":
    main()
