"""Apache's client gets the same answers from our name server as from Apache's.

`Interview.java` asks both servers the same questions with Apache's own codecs, once with JSON headers, once
with binary headers, once over TLS on the same port, and prints every answer. Codes, remarks, header fields
and bodies have to be equal, bodies byte for byte where RocketMQ defines their order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compat.apache import ApacheNamesrv, Server, run_java
from tests.compat.client.normal import unordered, without_places
from tests.compat.cluster import MakeNamesrv, side_by_side

# In this order, on both servers: an interview leaves an empty namespace behind, as Apache does.
TRANSPORTS: Mapping[str, Mapping[str, str]] = {
    "json": {},
    "binary": {"rocketmq.serialize.type": "ROCKETMQ"},
    "tls": {"tls.enable": "true"},
}

SECTIONS = {
    "kv": "N8",
    "register": "N4",
    "route": "N7",
    "version": "N5",
    "group": "N4",
    "topics": "N9",
    "permission": "N9",
    "zone": "N7",
    "removal": "N6",
    "acting": "N9",
    "config": "N9",
    "unexpected": "N9",
}

# Java's hash tables decide the order of these lists.
ANY_ORDER = {
    "topics: all",
    "topics: of the cluster",
    "topics: of the system",
    "topics: unit",
    "topics: with unit subscriptions",
}
# Apache filters by zone after encoding, then spells the older way for everybody; ours follows the client.
ANY_SPELLING = {"zone: route in the same zone"}
# Here Apache's remark is a Java exception with its class and line; that it refuses is what counts.
REMARK_IS_AN_EXCEPTION = {
    "unexpected: registration without fields",
    "unexpected: a body that is no registration",
    "unexpected: a compressed body that is not",
}


@dataclass(frozen=True)
class Told:
    """One answer as the interview printed it; `holds` is the result of waiting for a condition."""

    code: int | None
    remark: str | None
    fields: Mapping[str, str]
    body: str | None
    holds: bool | None


Interview = Mapping[str, Told]


def interview(server: Server, transport: str, home: Path) -> Interview:
    places = {str(server.home): "home", str(server.port): "port"}
    told: dict[str, Told] = {}
    printed = run_java("Interview.java", server.address, home=home, props=TRANSPORTS[transport])
    for line in printed.splitlines():
        answer = json.loads(line)
        body = answer.get("body")
        told[answer["step"]] = Told(
            code=answer.get("code"),
            remark=answer.get("remark"),
            fields=answer.get("fields", {}),
            body=None if body is None else without_places(body, places),
            holds=answer.get("holds"),
        )
    return told


@pytest.fixture(scope="module")
def interviews(
    tmp_path_factory: pytest.TempPathFactory, make_namesrv: MakeNamesrv
) -> dict[str, tuple[Interview, Interview]]:
    """By transport: the interview with Apache's name server, and the one with ours."""
    home = tmp_path_factory.mktemp("interviews")

    def hold(name: str, make: MakeNamesrv) -> list[Interview]:
        with make(home / name / "namesrv") as server:
            return [interview(server, transport, home / name / transport) for transport in TRANSPORTS]

    apache, ours = side_by_side(lambda: hold("apache", ApacheNamesrv), lambda: hold("ours", make_namesrv))
    return dict(zip(TRANSPORTS, zip(apache, ours, strict=True), strict=True))


def section_of(told: Interview, section: str) -> dict[str, Told]:
    return {step: answer for step, answer in told.items() if step.startswith(f"{section}: ")}


def comparable(step: str, answer: Told) -> tuple[object, ...]:
    """What has to be equal of an answer."""
    remark: object = answer.remark
    if step in REMARK_IS_AN_EXCEPTION:
        remark = bool(answer.remark)
    body: object = answer.body
    if step in ANY_ORDER | ANY_SPELLING and answer.body is not None:
        body = unordered(answer.body)
    return answer.code, remark, answer.fields, body, answer.holds


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("section", SECTIONS, ids=[f"{number}-{name}" for name, number in SECTIONS.items()])
def test_both_name_servers_give_the_same_answers(
    interviews: dict[str, tuple[Interview, Interview]], transport: str, section: str
) -> None:
    """N4-N9: every answer is Apache's, whatever the headers are written in and whether TLS is used."""
    apache, ours = (section_of(told, section) for told in interviews[transport])
    assert apache, "the interview has no such section"
    assert list(ours) == list(apache)
    differences = {
        step: {"apache": answer, "ours": ours[step]}
        for step, answer in apache.items()
        if comparable(step, ours[step]) != comparable(step, answer)
    }
    assert differences == {}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_compressed_registration_is_read_and_its_checksum_is_checked(
    interviews: dict[str, tuple[Interview, Interview]], transport: str
) -> None:
    """N4: a wrong checksum changes nothing; the right one makes the topics of the compressed body known."""
    _, ours = interviews[transport]
    refused = ours["register: compressed, wrong checksum"]
    assert (refused.code, refused.remark) == (1, "crc32 not match")
    assert ours["register: route after a wrong checksum"].code == 17
    assert ours["register: compressed"].code == 0
    body = ours["register: route of the compressed one"].body
    assert body is not None
    assert '"readQueueNums":8' in body


def test_a_slave_is_told_its_master(interviews: dict[str, tuple[Interview, Interview]]) -> None:
    """N4: the answer to a slave carries its master's address and replication address, and only then."""
    _, ours = interviews["json"]
    assert ours["group: a slave before its master"].fields == {}
    assert ours["group: the slave again"].fields == {
        "masterAddr": "10.0.0.5:1091",
        "haServerAddr": "10.0.0.5:10919",
    }


def test_the_shape_of_a_route_follows_the_age_of_the_client(
    interviews: dict[str, tuple[Interview, Interview]],
) -> None:
    """N7: bare number keys up to V4_9_3, quoted ones from V4_9_4 on or when asked for."""
    _, ours = interviews["json"]
    bare, quoted = '{0:"10.0.0.3:1091"}', '{"0":"10.0.0.3:1091"}'
    shapes = {
        "route: of a client before V4_9_4": bare,
        "route: of the last client before V4_9_4": bare,
        "route: of the first V4_9_4 client": quoted,
        "route: of an old client that wants standard JSON": quoted,
        "route: of a client of today": quoted,
    }
    for step, shape in shapes.items():
        body = ours[step].body
        assert body is not None
        assert shape in body, step


def test_a_closed_connection_removes_its_broker_at_once(
    interviews: dict[str, tuple[Interview, Interview]],
) -> None:
    """N6: no scan has to come by: the routes are gone while the interview waits for it."""
    _, ours = interviews["json"]
    assert ours["removal: a closed connection takes the route away"].holds is True
    assert ours["removal: cluster info after the last broker"].body == (
        '{"brokerAddrTable":{},"clusterAddrTable":{}}'
    )
