"""The cluster-test processor: routes that are missing here come from production (N10)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cometmq.namesrv.config import NamesrvSettings
from tests.integration.address_server import address_server, ok
from tests.integration.namesrv.namesrv_kit import (
    A1,
    A2,
    NAME,
    OK,
    Visit,
    both_encodings,
    plain_connection,
    running_namesrv,
)

NOWHERE = "127.0.0.1:1"


@pytest.fixture
async def production(tmp_path: Path) -> AsyncIterator[Visit]:
    """A name server with a broker that has P1 and T1."""
    async with running_namesrv(tmp_path / "production") as visit:
        await visit.broker(A1, topics=["P1", "T1"]).register()
        yield visit


def listed(*addresses: str) -> NamesrvSettings:
    return NamesrvSettings(product_env_namesrv_addr=";".join(addresses))


@both_encodings
async def test_what_is_local_comes_first_and_production_fills_the_gaps(
    tmp_path: Path, production: Visit, encoding: int
) -> None:
    """N10: brokers register here all the same."""
    settings = listed(production.address)
    async with running_namesrv(tmp_path / "test", settings=settings, cluster_test=True) as test:
        assert await test.broker(A2, topics=["T1", "T2"]).register() == OK
        assert await test.addresses("T1") == {NAME: {"0": A2}}
        assert await test.addresses("P1") == {NAME: {"0": A1}}
        assert (await test.route("P1", encoding)) == await production.route("P1", encoding)
        answer = await test.route("NoSuchTopic", encoding)
        assert answer == await production.route("NoSuchTopic", encoding)
        assert answer.code == 17
        assert (await test.ask(106)).code == 0, "other requests are served as ever"


async def test_an_old_client_gets_productions_route_in_its_own_shape(
    tmp_path: Path, production: Visit
) -> None:
    """N7, N10: whatever shape production answered us in."""
    settings = listed(production.address)
    async with (
        running_namesrv(tmp_path / "test", settings=settings, cluster_test=True) as test,
        plain_connection(test.address) as wire,
    ):
        old = await wire.ask(105, {"topic": "P1"}, version=300)
        assert b'"brokerAddrs":{0:"127.0.0.1:10911"}' in old.body
        new = await wire.ask(105, {"topic": "P1"})
        assert b'"brokerAddrs":{"0":"127.0.0.1:10911"}' in new.body


async def test_without_the_setting_nobody_is_asked(tmp_path: Path, production: Visit) -> None:
    """N10: clusterTest is off by default."""
    async with running_namesrv(tmp_path / "test", settings=listed(production.address)) as test:
        assert (await test.route("P1")).code == 17


async def test_the_address_comes_from_the_variable_that_clients_use(
    tmp_path: Path, production: Visit
) -> None:
    """N10: NAMESRV_ADDR, unless the setting names somebody else."""
    variables = {"NAMESRV_ADDR": production.address}
    async with running_namesrv(tmp_path / "test", environment=variables, cluster_test=True) as test:
        assert await test.addresses("P1") == {NAME: {"0": A1}}
    settings = listed(production.address)
    variables = {"NAMESRV_ADDR": NOWHERE}
    async with running_namesrv(
        tmp_path / "other", settings=settings, environment=variables, cluster_test=True
    ) as test:
        assert await test.addresses("P1") == {NAME: {"0": A1}}


async def test_the_next_name_server_is_asked_when_one_fails(tmp_path: Path, production: Visit) -> None:
    """N10: or when it does not know the topic."""
    async with running_namesrv(tmp_path / "empty") as empty:
        settings = listed(NOWHERE, " ", empty.address, f" {production.address} ")
        async with running_namesrv(tmp_path / "test", settings=settings, cluster_test=True) as test:
            assert await test.addresses("P1") == {NAME: {"0": A1}}


@pytest.mark.parametrize("addresses", [NOWHERE, "no address", ";"])
async def test_a_production_that_cannot_be_reached_is_no_route(tmp_path: Path, addresses: str) -> None:
    """N10: the answer is the usual one."""
    async with running_namesrv(tmp_path, settings=listed(addresses), cluster_test=True) as test:
        answer = await test.route("P1")
        assert answer.code == 17
        assert "topic: P1\n" in (answer.remark or "")


# RocketMQ's address server.


async def test_the_address_comes_from_the_address_server(tmp_path: Path, production: Visit) -> None:
    """N10: by the name of the production environment."""
    async with address_server(ok(f"{production.address}\n")) as (service, domain):
        variables = {"COMETMQ_NAMESRV_DOMAIN": domain}
        async with running_namesrv(tmp_path / "a", environment=variables, cluster_test=True) as test:
            assert await test.addresses("P1") == {NAME: {"0": A1}}
        variables["COMETMQ_NAMESRV_DOMAIN_SUBGROUP"] = "blue"
        async with running_namesrv(
            tmp_path / "b", environment=variables, cluster_test=True, product_env_name="live"
        ) as test:
            assert await test.addresses("P1") == {NAME: {"0": A1}}
    assert service.paths == ["/rocketmq/nsaddr-center?nofix=1", "/rocketmq/blue-live?nofix=1"]


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", b"what?\r\n\r\n", ok(""), b""],
    ids=["not found", "no HTTP", "empty", "closed"],
)
async def test_an_address_server_that_fails_is_no_route(tmp_path: Path, answer: bytes) -> None:
    """N10: the answer is the usual one."""
    async with address_server(answer) as (service, domain):
        variables = {"COMETMQ_NAMESRV_DOMAIN": domain}
        async with running_namesrv(tmp_path, environment=variables, cluster_test=True) as test:
            assert (await test.route("P1")).code == 17
    assert len(service.paths) == 1
