"""What one request can make a broker keep, and what settings it can be left with (B7, B13)."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from cometmq.broker.groups.groups import MAX_GROUP_BYTES
from cometmq.broker.send.properties import PropertyLayouts
from cometmq.ports.disk import SystemDisk
from cometmq.store.tools.verify import verify_store
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.group import UpdateGroupForbiddenRequest
from cometmq.wire.headers.offset import CloneGroupOffsetRequest, ResetOffsetRequest
from cometmq.wire.record.batch import BatchItem, encode_batch
from tests.integration.broker.broker_kit import BrokerKit, running_broker, send_header
from tests.integration.broker.responsive_kit import topic
from tests.waiting import eventually

OK, NO_PERMISSION, INVALID = 0, 16, 29
CHECKSUM = "1234567890"


@pytest.mark.parametrize(
    "setting",
    [
        "messageDelayLevel=1s 999999999999999999d",
        f"messageDelayLevel=1s {'9' * 5_000}d",
        "msgTraceTopicName=rmq_sys_wheel_timer",
        "msgTraceTopicName=RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "msgTraceTopicName=../../x",
        "startAcceptSendRequestTimeStamp=9223372036854775807",
        "timerMaxDelaySec=2147483647",
        "namesrvAddr=;;;:::",
        "namesrvAddr=127.0.0.1:99999",
    ],
)
async def test_settings_that_break_a_service_are_refused(tmp_path: Path, setting: str) -> None:
    """B13: with a sentence; nothing is stored, and messages come through."""
    path = tmp_path / "broker.conf"
    async with running_broker(settings={"brokerConfigPath": str(path)}) as kit:
        code, remark, _, _ = await kit.call(RequestCode.UPDATE_BROKER_CONFIG, None, setting.encode())
        assert code != OK
        assert setting.partition("=")[0] in (remark or "")
        assert (await kit.send("Orders", b"x", {"UNIQ_KEY": "A" * 32, "DELAY": "2"}))[0] == OK
    assert not path.exists()


async def test_a_trace_topic_of_its_own_can_be_sent_to() -> None:
    """B13."""
    async with running_broker(settings={"msgTraceTopicName": "Traces", "traceTopicEnable": "true"}) as kit:
        assert (await kit.send("Traces", b"x"))[0] == OK
        assert (await kit.send("rmq_sys_wheel_timer", b"x"))[0] == NO_PERMISSION


async def test_offsets_of_many_topics_are_cloned_in_a_moment() -> None:
    """B7: the count of all offsets is kept up, not made anew for each topic."""
    async with running_broker() as kit:
        state = kit.broker.context
        for number in range(3_000):
            state.topics.ensure(f"T{number}", 4)
            for queue_id in range(4):
                state.offsets.commit("test", "source", f"T{number}", queue_id, 1)
        before = len(state.offsets)
        header = CloneGroupOffsetRequest(src_group="source", dest_group="target", offline=True)
        began = time.perf_counter()
        for _ in range(2):
            assert (await kit.call(RequestCode.CLONE_GROUP_OFFSET, header))[0] == OK
        assert time.perf_counter() - began < 2.0
        assert len(state.offsets) == before + 12_000
        assert state.offsets.query("target", "T2999", 3) == 1


async def test_offsets_of_queues_that_are_not_there_are_not_reset() -> None:
    """B7."""
    async with running_broker(settings={"useServerSideResetOffset": "true"}) as kit:
        await kit.ok(RequestCode.UPDATE_AND_CREATE_TOPIC, topic("Orders", 4))
        kit.broker.context.groups.find("billing")
        before = len(kit.broker.context.offsets)
        for queue_id in (4, 300_000, 2**31 - 1):
            for offset in (None, 0):
                header = ResetOffsetRequest(
                    topic="Orders",
                    group="billing",
                    timestamp=-1,
                    is_force=True,
                    queue_id=queue_id,
                    offset=offset,
                )
                code, remark, _, _ = await kit.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
                assert (code, remark) == (INVALID, f"topic Orders has no queue {queue_id} on this broker")
        assert len(kit.broker.context.offsets) == before


def test_no_layout_is_worked_out_for_very_long_names() -> None:
    """B7: it would take half a second of everybody's time."""
    shapes = PropertyLayouts({})
    block = b"".join(b"%060000d\x01v\x02" % number for number in range(4)) + b"UNIQ_KEY\x01A\x02"
    began = time.perf_counter()
    assert [shapes.find(block) for _ in range(3)] == [None] * 3
    assert time.perf_counter() - began < 0.2
    short = b"colour\x01red\x02UNIQ_KEY\x01A\x02"
    assert [shapes.find(short) is not None for _ in range(2)] == [False, True]


async def test_a_list_of_topics_with_fewer_queues_is_looked_through_in_a_moment() -> None:
    """B7: only queues that are there are looked at."""
    async with running_broker() as kit:
        state = kit.broker.context
        for number in range(300):
            state.topics.ensure(f"T{number}", 65_536)
        configs = [
            {"topicName": f"T{number}", "readQueueNums": 0, "writeQueueNums": 0, "perm": 6}
            for number in range(300)
        ]
        body = str({"topicConfigList": configs}).replace("'", '"').encode()
        began = time.perf_counter()
        assert (await kit.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body))[0] == OK
        assert time.perf_counter() - began < 2.0


async def test_settings_of_a_group_have_a_largest_size() -> None:
    """B7: the table of groups is written as a whole, and read at every start."""
    async with running_broker() as kit:
        for size, code in ((MAX_GROUP_BYTES // 2, OK), (MAX_GROUP_BYTES, INVALID), (14_000_000, INVALID)):
            body = f'{{"groupName":"g{size}","attributes":{{"note":"{"x" * size}"}}}}'.encode()
            told = await kit.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
            assert told[0] == code, told[1]
        assert f"g{MAX_GROUP_BYTES}" not in kit.broker.context.groups.table


async def test_what_groups_may_not_do_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """B7."""
    monkeypatch.setattr("cometmq.broker.groups.groups.MAX_FORBIDDEN", 3)
    async with running_broker() as kit:
        codes = []
        for number in range(5):
            header = UpdateGroupForbiddenRequest(group=f"g{number}", topic="Orders", readable=False)
            codes.append((await kit.call(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header))[0])
        assert codes == [OK, OK, OK, INVALID, INVALID]
        header = UpdateGroupForbiddenRequest(group="g0", topic="Orders", readable=True)
        assert (await kit.call(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header))[0] == OK


@pytest.mark.parametrize("name", ["__CRC32#", "x__CRC32#", "__CRC32_", "a\x01__CRC32#"])
async def test_a_property_that_looks_like_a_checksum_is_no_damage(tmp_path: Path, name: str) -> None:
    """B7: of single messages, of batches and of transactions; a start and `verify` find nothing wrong."""
    properties = f"{name}\x01{CHECKSUM}\x02"
    async with running_broker(tmp_path) as kit:
        for own in ("", f"UNIQ_KEY\x01{'A' * 32}\x02"):
            for _ in range(3):
                assert (
                    await kit.call(RequestCode.SEND_MESSAGE_V2, send_header("Orders", own + properties), b"x")
                )[0] == OK
        body = encode_batch([BatchItem(b"x", properties.encode())] * 3)
        for of_batch in ("", properties):
            header = send_header("Orders", of_batch, batch=True)
            assert (await kit.call(RequestCode.SEND_BATCH_MESSAGE, header, body))[0] == OK
        await half_message(kit, properties)
    assert verify_store(SystemDisk(), tmp_path / "store").findings == []


async def half_message(kit: BrokerKit, properties: str, **fields: object) -> None:
    half = f"TRAN_MSG\x01true\x02PGROUP\x01shop\x02UNIQ_KEY\x01{'B' * 32}\x02{properties}"
    assert (await kit.call(RequestCode.SEND_MESSAGE_V2, send_header("Orders", half, **fields), b"x"))[0] == OK


@pytest.mark.parametrize("born", ["now", "long ago"])
async def test_transactions_that_nobody_ends_take_one_line(
    caplog: pytest.LogCaptureFixture, born: str
) -> None:
    """B10: not one for each and each check."""
    settings = {"transactionTimeOut": "1", "transactionCheckInterval": "50"}
    born_ms = int(time.time() * 1000) if born == "now" else 0
    with caplog.at_level(logging.WARNING, "cometmq.broker"):
        async with running_broker(settings=settings) as kit:
            for _ in range(50):
                await half_message(kit, "", born_timestamp=born_ms)
            checking = kit.broker.context.transactions.checker
            await eventually(
                lambda: checking.checked >= 150 if born == "now" else checking.given_up >= 50,
                "all of them were looked at",
            )
    said = [record.message for record in caplog.records if "transaction" in record.message]
    assert len(said) == 1
    assert ("can be asked" if born == "now" else "is too old") in said[0]
