"""A made-up cluster in a name server: brokers that exist only as registrations.

Rules kept here:

- Every broker has every topic, so a route names all brokers: that is what makes a look-up cost something.
- A broker is its connection: the sockets stay open as long as the cluster, because a name server forgets
  a broker whose connection closes.
- A broker that is silent for 120 s expires. Call `heartbeat` between measurements; it asks for an answer,
  so a name server that has forgotten a broker is noticed.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Self

from bench.errors import ClusterError
from bench.load.frames import Answer, Caller, binary_request, json_request

REGISTER_BROKER = 103
GET_ROUTEINFO_BY_TOPIC = 105
BROKER_HEARTBEAT = 904

_CLUSTER = "BenchCluster"
_QUEUES = 8


def topic_names(count: int) -> list[str]:
    return [f"orders-of-region-{number:04d}" for number in range(count)]


def route_requests(topics: Sequence[str], *, binary: bool = False) -> list[bytes]:
    """One look-up per topic, as a Java client writes it."""
    request: Callable[[int, dict[str, str]], bytes] = binary_request if binary else json_request
    return [request(GET_ROUTEINFO_BY_TOPIC, {"topic": topic}) for topic in topics]


class RegisteredCluster:
    """Brokers registered with one name server until the context ends."""

    def __init__(self, namesrv: tuple[str, int], brokers: int, topics: Sequence[str]) -> None:
        self._namesrv = namesrv
        self._topics = list(topics)
        self._brokers = [(f"broker-{number}", f"10.0.0.{number + 1}:10911") for number in range(brokers)]
        self._callers: list[Caller] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        body = _registration_body(self._topics)
        try:
            for name, address in self._brokers:
                caller = self._open.enter_context(Caller(self._namesrv))
                self._callers.append(caller)
                self._expect_success(
                    caller.ask(json_request(REGISTER_BROKER, _registration(name, address, body), body))
                )
            self._check_route()
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def heartbeat(self) -> None:
        """Keep every broker alive for another 120 s."""
        for caller, (name, address) in zip(self._callers, self._brokers, strict=True):
            fields = {"brokerAddr": address, "brokerName": name, "clusterName": _CLUSTER}
            self._expect_success(caller.ask(json_request(BROKER_HEARTBEAT, fields)))
        self._check_route()

    def _check_route(self) -> None:
        """Look one topic up and read the answer in full: all brokers, each with its queues and address."""
        answer = self._callers[0].ask(route_requests(self._topics[-1:])[0])
        self._expect_success(answer)
        route = json.loads(answer.body)
        queues = {queue["brokerName"]: queue["readQueueNums"] for queue in route["queueDatas"]}
        addresses = {broker["brokerName"]: broker["brokerAddrs"]["0"] for broker in route["brokerDatas"]}
        if addresses != dict(self._brokers) or queues != dict.fromkeys(addresses, _QUEUES):
            raise ClusterError(f"the route is not what was registered: {answer.body[:500]!r}")

    def _expect_success(self, answer: Answer) -> None:
        if answer.code:
            raise ClusterError(f"the name server answered code {answer.code}: {answer.remark}")


def _registration(name: str, address: str, body: bytes) -> dict[str, str]:
    return {
        "brokerId": "0",
        "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
        "clusterName": _CLUSTER,
        "brokerAddr": address,
        "enableActingMaster": "false",
        "haServerAddr": address.replace("10911", "10912"),
        "compressed": "false",
        "brokerName": name,
    }


def _registration_body(topics: Sequence[str]) -> bytes:
    version = {"counter": 1, "stateVersion": 0, "timestamp": int(time.time() * 1000)}
    wrapper = {
        "dataVersion": version,
        "mappingDataVersion": version,
        "topicConfigTable": {topic: _topic_config(topic) for topic in topics},
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    text = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}, separators=(",", ":"))
    return text.encode()


def _topic_config(topic: str) -> dict[str, object]:
    return {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": _QUEUES,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic,
        "topicSysFlag": 0,
        "writeQueueNums": _QUEUES,
    }
