"""Servers that may have few files open: connections and topics cannot use up what the store needs."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cometmq.remoting.client import RemotingClient
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.offset import GetMaxOffsetRequest
from cometmq.wire.headers.session import HeartbeatRequest
from cometmq.wire.headers.topic import CreateTopicRequest
from tests.integration.broker.broker_kit import running_broker, send_header
from tests.waiting import wait_until

READY_S = 60.0
FEW = 200
FOR_CONNECTIONS = FEW - 100
SMALL = ("mappedFileSizeConsumeQueue=2000", "mappedFileSizeCommitLog=4194304", "messageIndexEnable=false")


class Server:
    """A server of the command line that may have few descriptors."""

    def __init__(self, home: Path, *arguments: str, most: int = FEW) -> None:
        command = [sys.executable, "-m", "cometmq.cli.main", *arguments, "--json"]
        self.errors = home / "errors.log"
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                ["bash", "-c", f'ulimit -n {most}; exec "$@"', "bash", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "HOME": str(home)},
            )
        out = self.process.stdout
        assert out is not None
        readable, _, _ = select.select([out], [], [], READY_S)
        assert readable
        line = out.readline()
        assert line, self.log
        self.facts = json.loads(line)

    @property
    def log(self) -> str:
        return self.errors.read_text()

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(READY_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def broker_with_few(home: Path, *settings: str) -> Iterator[tuple[Server, str]]:
    options = [part for each in settings for part in ("--set", each)]
    server = Server(
        home, "broker", "--port", "0", "--bind", "127.0.0.1", "--set", "brokerIP1=127.0.0.1", *options
    )
    try:
        yield server, server.facts["address"]
    finally:
        server.kill()


def connect_many(address: str, count: int) -> list[socket.socket]:
    host, port = address.rsplit(":", 1)
    return [socket.create_connection((host, int(port))) for _ in range(count)]


def are_open(connections: list[socket.socket]) -> int:
    """How many of them the other side has not closed."""
    count = 0
    for each in connections:
        each.setblocking(False)
        try:
            count += each.recv(1) != b""
        except BlockingIOError:
            count += 1
        except OSError:
            pass
    return count


def verify(store: Path) -> subprocess.CompletedProcess[str]:
    """`cometmq store verify`, with fewer descriptors than there are queues."""
    settings = store.parent / "verified.conf"
    settings.write_text("messageIndexEnable=false\n")
    command = [sys.executable, "-m", "cometmq.cli.main", "store", "verify", str(store), "-c", str(settings)]
    limited = ["bash", "-c", 'ulimit -n 64; exec "$@"', "bash", *command]
    return subprocess.run(limited, capture_output=True, text=True, check=False)


async def send(client: RemotingClient, address: str, topic: str = "orders", queue_id: int = 0) -> int:
    header = send_header(topic, None, queue_id=queue_id, default_topic_queue_nums=8)
    answer = await client.call(address, RequestCode.SEND_MESSAGE_V2, header, body=b"hello", timeout_s=20)
    return answer.code


async def test_connections_up_to_the_limit_cost_neither_a_sync_nor_those_who_are_there(
    tmp_path: Path,
) -> None:
    """B5, N4: one more than its share is closed at once; a sync needs no descriptor; others come in later."""
    with broker_with_few(tmp_path, "flushDiskType=SYNC_FLUSH", *SMALL) as (server, address):
        client = RemotingClient()
        assert await send(client, address) == ResponseCode.SUCCESS
        many = connect_many(address, 2 * FEW)
        wait_until(lambda: are_open(many), "connections are refused", lambda count: count <= FOR_CONNECTIONS)
        assert are_open(many) > FOR_CONNECTIONS // 2
        for number in range(20):
            assert await send(client, address, f"topic-{number}") == ResponseCode.SUCCESS
        assert server.descriptors < FEW
        assert "raise the limit (ulimit -n)" in server.log
        assert server.log.count("refused") < 5
        assert f"{FEW} descriptors: {FOR_CONNECTIONS} for connections" in server.log
        for each in many:
            each.close()
        wait_until(lambda: server.descriptors, "they are closed", lambda count: count < FEW // 2)
        other = RemotingClient()
        assert await send(other, address) == ResponseCode.SUCCESS
        await client.stop()
        await other.stop()
        assert server.stop() == 0


async def test_a_server_without_a_descriptor_left_does_not_spin(tmp_path: Path) -> None:
    with broker_with_few(tmp_path, *SMALL) as (server, address):
        many = connect_many(address, 2 * FEW)
        wait_until(lambda: are_open(many), "connections are refused", lambda count: count <= FOR_CONNECTIONS)
        statistics = Path(f"/proc/{server.process.pid}/stat")

        def ticks() -> int:
            return sum(map(int, statistics.read_text().split()[13:15]))

        before, started = ticks(), time.monotonic()
        wait_until(lambda: time.monotonic() - started, "two seconds pass", lambda passed_s: passed_s > 2)
        assert ticks() - before < os.sysconf("SC_CLK_TCK")
        for each in many:
            each.close()


@pytest.mark.timeout(240)
async def test_more_queues_than_descriptors_are_sent_to_read_restarted_and_verified(tmp_path: Path) -> None:
    """B7: 60 topics with 8 queues each, and 200 descriptors."""
    topics = [f"topic-{number}" for number in range(60)]
    with broker_with_few(tmp_path, *SMALL) as (server, address):
        client = RemotingClient()
        for topic in topics:
            codes = [await send(client, address, topic, queue_id) for queue_id in range(8)]
            assert codes == [ResponseCode.SUCCESS] * 8
        assert server.descriptors < FEW // 2
        await client.stop()
        assert server.stop() == 0
    verified = verify(tmp_path / "store")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    with broker_with_few(tmp_path, *SMALL) as (server, address):
        client = RemotingClient()
        for topic in topics:
            header = GetMaxOffsetRequest(topic=topic, queue_id=7)
            answer = await client.call_ok(address, RequestCode.GET_MAX_OFFSET, header)
            assert answer.fields()["offset"] == "1"
        assert server.descriptors < FEW // 2
        await client.stop()
        assert server.stop() == 0


async def test_a_name_server_with_few_descriptors_keeps_those_who_are_there(tmp_path: Path) -> None:
    server = Server(tmp_path, "namesrv", "--port", "0", "--bind", "127.0.0.1")
    try:
        address = f"127.0.0.1:{server.facts['port']}"
        client = RemotingClient()
        await client.call(address, RequestCode.GET_BROKER_CLUSTER_INFO)
        many = connect_many(address, 2 * FEW)
        wait_until(lambda: are_open(many), "connections are refused", lambda count: count <= FOR_CONNECTIONS)
        answer = await client.call(address, RequestCode.GET_BROKER_CLUSTER_INFO)
        assert answer.code == ResponseCode.SUCCESS
        for each in many:
            each.close()
        await client.stop()
        assert server.stop() == 0
    finally:
        server.kill()


async def test_anybody_can_have_so_many_topics_made_and_no_more(tmp_path: Path) -> None:
    """B2: then the answer is the one of a broker that makes none, with the reason."""
    async with running_broker(tmp_path, {"maxAutoCreateTopics": "20"}) as kit:
        answers = [await kit.send(f"topic-{number}") for number in range(30)]
        refused = [answer for answer in answers if answer.code != ResponseCode.SUCCESS]
        assert len(kit.broker.context.topics.table) == 20
        assert len(refused) >= 10
        assert {answer.code for answer in refused} == {ResponseCode.TOPIC_NOT_EXIST}
        assert "maxAutoCreateTopics" in (refused[0].remark or "")
        assert (await kit.send("topic-0")).code == ResponseCode.SUCCESS


def new_topic(number: int) -> CreateTopicRequest:
    return CreateTopicRequest(
        topic=f"topic-{number}",
        default_topic="TBW102",
        read_queue_nums=1,
        write_queue_nums=1,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )


async def test_an_administrator_has_a_limit_of_their_own(tmp_path: Path) -> None:
    async with running_broker(tmp_path, {"maxAutoCreateTopics": "1", "maxTopics": "20"}) as kit:
        answers = [
            await kit.call(RequestCode.UPDATE_AND_CREATE_TOPIC, new_topic(number)) for number in range(30)
        ]
        assert len(kit.broker.context.topics.table) == 20
        assert (answers[-1].code, answers[0].code) == (ResponseCode.INVALID_PARAMETER, ResponseCode.SUCCESS)
        assert "maxTopics" in (answers[-1].remark or "")


async def test_heartbeats_make_only_so_many_groups_and_retry_topics(tmp_path: Path) -> None:
    limits = {"maxAutoCreateSubscriptionGroups": "30", "maxTopics": "25"}
    async with running_broker(tmp_path, limits) as kit:
        for number in range(60):
            consumers = {
                "groupName": f"group-{number}",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [],
                "unitMode": False,
            }
            beat = {"clientID": "client", "consumerDataSet": [consumers], "producerDataSet": []}
            await kit.call(RequestCode.HEART_BEAT, HeartbeatRequest(), json.dumps(beat).encode())
        assert len(kit.broker.context.groups.table) == 30
        assert len(kit.broker.context.topics.table) == 25
