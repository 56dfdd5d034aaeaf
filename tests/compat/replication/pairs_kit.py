"""Pairs of a master and a slave, ours or Apache's, and what they have."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cometmq.remoting.client import RemotingClient
from cometmq.wire.codes import RequestCode
from tests.compat.apache import ApacheBroker, Broker, CometBroker, CometNamesrv
from tests.compat.ask import SUCCESS, ask
from tests.integration.broker.broker_kit import send_header
from tests.waiting import wait_until

KINDS: Mapping[str, type[ApacheBroker] | type[CometBroker]] = {"comet": CometBroker, "apache": ApacheBroker}
FILE_SIZE = 1 << 20
TOPIC, TYPED = "Replicated", "Typed"
UPDATE_TOPIC = 17
SYNC_S = 90.0
COMMON = {
    "mappedFileSizeCommitLog": str(FILE_SIZE),
    "flushDiskType": "ASYNC_FLUSH",
    "timerWheelEnable": "false",
    "slaveReadEnable": "true",
}
MASTER = {**COMMON, "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "10000"}
SLAVE = {**COMMON, "brokerRole": "SLAVE", "brokerId": "1"}


class Pair(NamedTuple):
    """A master and a slave that follows it."""

    namesrv: CometNamesrv
    master: Broker
    slave: Broker


@contextmanager
def a_pair(root: Path, master: str, slave: str) -> Iterator[Pair]:
    (root / "n").mkdir()
    with CometNamesrv(root / "n") as namesrv:
        first = KINDS[master](home(root / "m"), namesrv.address, settings=MASTER)
        second = KINDS[slave](home(root / "s"), namesrv.address, settings=SLAVE)
        with first:
            first.wait_registered(namesrv.address)
            with second:
                pair = Pair(namesrv, first, second)
                wait_until(lambda: follows(pair), "the slave follows", seconds=SYNC_S)
                yield pair


def home(path: Path) -> Path:
    path.mkdir()
    return path


def ha_status(broker: Broker) -> dict[str, Any]:
    answer = ask(broker.address, RequestCode.GET_BROKER_HA_STATUS)
    assert answer.code == SUCCESS
    status: dict[str, Any] = json.loads(answer.body)
    return status


def follows(pair: Pair) -> bool:
    return any(each["slaveAckOffset"] >= 0 for each in ha_status(pair.master)["haConnectionInfo"])


def send(broker: Broker, count: int, size: int = 700, topic: str = TOPIC) -> list[int]:
    """Send messages one after the other, all on one connection; returns the codes."""

    async def run() -> list[int]:
        client = RemotingClient()
        try:
            codes = []
            for number in range(count):
                header = send_header(topic, {"KEYS": f"k{number}", "TAGS": "t"}, queue_id=number % 4)
                body = b"%06d " % number + b"x" * size
                answer = await client.call(
                    broker.address, RequestCode.SEND_MESSAGE_V2, header, body=body, timeout_s=30
                )
                codes.append(answer.code)
            return codes
        finally:
            await client.stop()

    return asyncio.run(run())


def create_topic(broker: Broker, topic: str, attributes: str = "") -> None:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
        "attributes": attributes,
    }
    answer = ask(broker.address, UPDATE_TOPIC, fields)
    assert answer.code == SUCCESS, answer


def log_files(broker: Broker) -> dict[str, bytes]:
    folder = Path(broker.settings["storePathCommitLog"])
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def end_of(status: dict[str, Any]) -> int:
    if status["master"]:
        return int(status["masterCommitLogMaxOffset"])
    return int(status["haClientRuntimeInfo"]["maxOffset"])


def wait_equal(pair: Pair) -> int:
    """Wait until both logs end at the same offset; returns it."""
    return wait_until(
        lambda: (end_of(ha_status(pair.master)), end_of(ha_status(pair.slave))),
        "both logs end at the same offset",
        lambda ends: ends[0] == ends[1],
        seconds=SYNC_S,
    )[0]


def assert_equal_logs(pair: Pair, end: int) -> None:
    ours, theirs = log_files(pair.master), log_files(pair.slave)
    names = [name for name in ours if int(name) < end]
    assert names
    for name in names:
        upto = min(end - int(name), FILE_SIZE)
        assert ours[name][:upto] == theirs[name][:upto], name


def topics_of(broker: Broker) -> dict[str, Any]:
    """The saved topics; none while the file is being written, which Apache's broker does in place."""
    path = Path(broker.settings["storePathRootDir"]) / "config" / "topics.json"
    try:
        table: dict[str, Any] = json.loads(path.read_text())["topicConfigTable"]
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return table


PAIRS = [("comet", "comet"), ("apache", "comet"), ("comet", "apache")]
