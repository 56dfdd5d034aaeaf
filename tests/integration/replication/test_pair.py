"""A master and its slave, two whole brokers of one name: roles, statuses, tables, reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cometmq.model.subscription import SubscriptionGroupConfig
from cometmq.model.topic import TopicConfig
from cometmq.testing.embedded import EmbeddedBroker
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.namesrv import GetRouteInfoRequest
from cometmq.wire.headers.pull import PullMessageRequest
from tests.answers import now_ms
from tests.integration.broker.broker_kit import BrokerKit, running_broker
from tests.integration.remoting.status_kit import PROMETHEUS, scrape, value
from tests.integration.replication.pair_kit import (
    HASTY,
    NAME,
    SYNC,
    a_slave,
    end_of,
    follows,
    log_of,
    same_end,
)
from tests.waiting import eventually


async def ha_status(kit: BrokerKit) -> dict[str, Any]:
    answer = await kit.ok(RequestCode.GET_BROKER_HA_STATUS)
    status: dict[str, Any] = json.loads(answer.body)
    return status


async def test_a_send_is_answered_when_the_slave_has_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "a", SYNC) as master, a_slave(tmp_path / "b", master) as slave:
        for number in range(20):
            answer = await master.send(body=b"%d" % number)
            assert answer.code == ResponseCode.SUCCESS
            assert end_of(slave) == end_of(master)
        assert log_of(slave) == log_of(master)
        assert [record.body for record in slave.stored("Orders")] == [b"%d" % each for each in range(20)]
        batch = await master.send_batch("Orders", [(b"one", {}), (b"two", {})])
        assert batch.code == ResponseCode.SUCCESS
        assert log_of(slave) == log_of(master)


async def test_without_its_slave_a_send_is_stored_and_says_so(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "a", HASTY) as master:
        assert (await master.send(body=b"alone")).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        batch = await master.send_batch("Orders", [(b"one", {}), (b"two", {})])
        assert batch.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        unhurried = await master.send(body=b"no copy wanted", properties={"WAIT": "false"})
        assert unhurried.code == ResponseCode.SUCCESS
        async with a_slave(tmp_path / "b", master) as slave:
            await same_end(master, slave)
            assert next(record.body for record in slave.stored("Orders")) == b"alone"


async def test_with_synchronous_flush_too_the_replicas_decide(tmp_path: Path) -> None:
    flushed = {**HASTY, "flushDiskType": "SYNC_FLUSH"}
    async with running_broker(tmp_path / "a", flushed) as master:
        assert (await master.send()).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        patient = {"slaveTimeout": "20000"}
        context = master.broker.context
        await master.ok(RequestCode.UPDATE_BROKER_CONFIG, None, b"slaveTimeout=20000\n")
        assert str(context.settings.store.slave_timeout) == patient["slaveTimeout"]
        async with a_slave(tmp_path / "b", master, {"flushDiskType": "SYNC_FLUSH"}) as slave:
            assert (await master.send()).code == ResponseCode.SUCCESS
            store = slave.broker.context.store
            assert store.flusher.flushed_offset == end_of(master)


async def test_a_sync_master_that_needs_one_copy_waits_for_nobody_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(tmp_path / "a", {**HASTY, "inSyncReplicas": "1"}) as master:
        assert "inSyncReplicas = 1 waits for no slave" in caplog.text
        assert (await master.send()).code == ResponseCode.SUCCESS


async def test_with_automatic_numbers_fewer_copies_do_but_not_fewer_than_the_minimum(tmp_path: Path) -> None:
    auto = {**HASTY, "enableAutoInSyncReplicas": "true"}
    async with running_broker(tmp_path / "a", auto) as master:
        assert (await master.send()).code == ResponseCode.SUCCESS
        await master.ok(RequestCode.UPDATE_BROKER_CONFIG, None, b"minInSyncReplicas=2\nslaveTimeout=20000\n")
        before = end_of(master)
        for refused in (await master.send(), await master.send_batch("Orders", [(b"one", {})])):
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert refused.remark == "in-sync replicas not enough"
        assert end_of(master) == before
        assert (await master.send(properties={"WAIT": "false"})).code == ResponseCode.SUCCESS
        async with a_slave(tmp_path / "b", master):
            answer = await eventually(master.send, "two replicas are in sync", lambda each: each.code == 0)
            assert answer.code == ResponseCode.SUCCESS


async def test_a_slave_is_in_the_route_and_takes_no_messages(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "a", NAME) as master, a_slave(tmp_path / "b", master) as slave:
        await master.send()
        client, namesrv = master.client, master.embedded.namesrv

        async def brokers() -> dict[str, str]:
            header = GetRouteInfoRequest(topic="Orders")
            answer = await client.call(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
            found = json.loads(bytes(answer.body))["brokerDatas"] if answer.body else []
            return dict(found[0]["brokerAddrs"]) if found else {}

        wanted = {"0": master.broker.address, "1": slave.broker.address}
        assert await eventually(brokers, "both are in the route", lambda found: found == wanted)
        refused = await slave.send()
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "REJECTREQUEST" in (refused.remark or "")


async def test_the_state_of_both_is_shown(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "a", SYNC) as master, a_slave(tmp_path / "b", master) as slave:
        await master.send()
        status = await ha_status(master)
        assert status["master"] is True
        assert status["inSyncSlaveNums"] == 1
        (replica,) = status["haConnectionInfo"]
        assert (replica["slaveAckOffset"], replica["diff"], replica["inSync"]) == (end_of(master), 0, True)
        status = await ha_status(slave)
        assert status["master"] is False
        assert status["haClientRuntimeInfo"]["maxOffset"] == end_of(master)
        address = status["haClientRuntimeInfo"]["masterAddr"]
        assert address == master.broker.context.ha_address
        exchanged = await master.ok(RequestCode.EXCHANGE_BROKER_HA_INFO)
        assert exchanged.fields["masterHaAddress"] == address


async def test_tables_are_copied_and_kept_equal(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "a", NAME) as master, a_slave(tmp_path / "b", master) as slave:
        ours, theirs = master.broker.context, slave.broker.context
        ours.topics.update(TopicConfig("Made", 3, 5, attributes={"message.type": "NORMAL"}))
        ours.groups.update(SubscriptionGroupConfig("billing", retry_max_times=3))
        ours.groups.forbid("billing", "Made")
        ours.offsets.commit("test", "billing", "Orders", 2, 77)
        ours.delays.offsets[3] = 9
        await ours.delays.save()

        def copied() -> bool:
            return (
                theirs.topics.table == ours.topics.table
                and theirs.topics.data_version == ours.topics.data_version
                and theirs.groups.table == ours.groups.table
                and theirs.groups.is_forbidden("billing", "Made")
                and theirs.offsets.query("billing", "Orders", 2) == 77
                and theirs.delays.offsets.get(3) == 9
            )

        await eventually(copied, "all tables are equal")
        ours.topics.delete("Made")
        ours.groups.delete("billing")
        await eventually(
            lambda: theirs.topics.get("Made") is None and theirs.groups.get("billing") is None,
            "what is deleted there is deleted here",
        )
        assert theirs.table_copies is not None
        assert theirs.table_copies.failures == {}


async def test_queues_of_a_deleted_topic_are_deleted_on_the_slave(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "a", NAME) as master, a_slave(tmp_path / "b", master) as slave:
        await master.send("Doomed")
        queues = slave.broker.context.store.queues
        await eventually(lambda: "Doomed" in slave.broker.context.topics.table, "the topic is copied")
        await same_end(master, slave)
        assert "Doomed" in queues.topics()
        master.broker.context.topics.delete("Doomed")
        await eventually(lambda: "Doomed" not in queues.topics(), "its queues are gone")


def pull_header(offset: int, *, hold_ms: int = 0) -> PullMessageRequest:
    return PullMessageRequest(
        consumer_group="billing",
        topic="Orders",
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=6 if hold_ms else 4,
        commit_offset=0,
        suspend_timeout_millis=hold_ms,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )


async def test_a_slave_serves_pulls_also_while_its_master_is_away(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "a", NAME) as master, a_slave(tmp_path / "b", master) as slave:
        await master.send(body=b"first")
        await same_end(master, slave)
        await eventually(lambda: slave.broker.context.topics.get("Orders") is not None)
        found = await slave.call(RequestCode.PULL_MESSAGE, pull_header(0))
        assert found.code == ResponseCode.SUCCESS
        assert b"first" in found.body
        sent_back = await slave.call(RequestCode.PULL_MESSAGE, pull_header(1, hold_ms=20_000))
        assert sent_back.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert sent_back.fields["suggestWhichBrokerId"] == "0"
        await master.embedded.stop_broker()
        await eventually(lambda: not follows(slave), "the slave has lost its master")
        held = await slave.call(RequestCode.PULL_MESSAGE, pull_header(1, hold_ms=100))
        assert held.code == ResponseCode.PULL_NOT_FOUND
        again = await slave.call(RequestCode.PULL_MESSAGE, pull_header(0))
        assert b"first" in again.body


async def test_a_log_of_another_master_is_not_continued(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "b", NAME) as other:
        await other.send(body=b"of another cluster")
        before = log_of(other)
    async with running_broker(tmp_path / "a", NAME) as master:
        for _ in range(5):
            await master.send(body=b"ours, and longer than that of the other")
        slave_settings = {**NAME, "brokerRole": "SLAVE", "brokerId": "1"}
        namesrv = master.embedded.namesrv
        async with EmbeddedBroker(tmp_path / "b", settings=slave_settings, namesrv=namesrv) as embedded:
            client = embedded.broker.context.ha_client
            assert client is not None
            await eventually(lambda: client.reason, "it says so", lambda reason: "on the master" in reason)
            assert log_of(BrokerKit(embedded)) == before
            assert not client.is_following


async def test_a_slave_finds_its_master_when_that_comes_later_and_follows_after_a_restart(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path / "a", SYNC) as master:
        await master.send(body=b"before", properties={"WAIT": "false"})
        async with a_slave(tmp_path / "b", master) as slave:
            await master.embedded.restart()
            await eventually(lambda: follows(slave), "the slave follows again")
            answer = await master.send(body=b"after")
            assert answer.code == ResponseCode.SUCCESS
            await slave.embedded.restart()
            await eventually(lambda: follows(slave), "the slave follows after its restart")
            assert (await master.send(body=b"last")).code == ResponseCode.SUCCESS
            assert log_of(slave) == log_of(master)


async def test_metrics_show_the_lag_of_slaves_and_whether_one_follows(tmp_path: Path) -> None:
    settings = {**SYNC, **PROMETHEUS}
    async with (
        running_broker(tmp_path / "a", settings) as master,
        a_slave(tmp_path / "b", master, PROMETHEUS) as slave,
    ):
        await master.send()
        assert master.broker.exporter is not None
        assert slave.broker.exporter is not None
        shown = await scrape(master.broker.exporter.port)
        assert value(shown, "cometmq_in_sync_replicas") == 2
        assert value(shown, "cometmq_replica_lag_bytes") == 0
        shown = await scrape(slave.broker.exporter.port)
        assert value(shown, "cometmq_follows_master") == 1


async def test_a_slave_can_be_made_the_master_by_hand(tmp_path: Path) -> None:
    """Messages, offsets and what waits for its time go on with it."""
    levels = {"messageDelayLevel": "1s 2s 3s"}
    async with (
        running_broker(tmp_path / "a", {**NAME, **levels}) as master,
        a_slave(tmp_path / "b", master, levels) as slave,
    ):
        await master.send(body=b"plain")
        master.broker.context.offsets.commit("test", "billing", "Orders", 0, 1)
        await master.send(body=b"delayed", properties={"UNIQ_KEY": "d", "DELAY": "3"})
        await master.send(
            body=b"timed",
            properties={"UNIQ_KEY": "t", "TIMER_DELAY_MS": "3000"},
            born_timestamp=now_ms(),
        )
        await same_end(master, slave)
        copied = slave.broker.context
        await eventually(lambda: copied.offsets.query("billing", "Orders", 0) == 1, "offsets are copied")
        await eventually(lambda: copied.topics.get("Orders") is not None, "topics are copied")
        await slave.embedded.stop_broker()
        await master.embedded.stop_broker()
    async with running_broker(tmp_path / "b", {**NAME, **levels}) as promoted:
        assert promoted.broker.context.offsets.query("billing", "Orders", 0) == 1
        assert (await promoted.send(body=b"new")).code == ResponseCode.SUCCESS
        wanted = {b"plain", b"new", b"delayed", b"timed"}

        def bodies() -> list[bytes]:
            return [bytes(record.body) for record in promoted.stored("Orders")]

        await eventually(lambda: set(bodies()) == wanted, "what waited for its time has come")
        assert len(bodies()) == len(wanted)
