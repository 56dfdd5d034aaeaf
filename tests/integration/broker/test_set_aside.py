"""Records that no service can process: set aside and shown, while everything else goes on (B6, B7, B8).

They are put into the store of a stopped broker, as an older broker could have left them there: clients cannot
send to these topics.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from cometmq.model.message import Host
from cometmq.model.names import DELAY_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from cometmq.ports.clock import SystemClock
from cometmq.ports.disk import SystemDisk
from cometmq.remoting.client import RemotingClient
from cometmq.store.config import StoreConfig
from cometmq.store.message_store import MessageStore
from cometmq.store.status import PutStatus
from cometmq.store.tools.dump import dump_topic
from cometmq.wire.bodies.pop import Checkpoint, encode_checkpoint
from cometmq.wire.record.codec import Record
from cometmq.wire.record.ids import pack_host
from cometmq.wire.record.properties import MAX_PROPERTIES_LENGTH, encode_properties
from tests.answers import now_ms
from tests.integration.broker.broker_kit import DELAYS, BrokerKit, running_broker
from tests.integration.broker.message_types_kit import COMMIT, Producer, transaction
from tests.integration.broker.pop.pop_kit import GROUP as POP_GROUP
from tests.integration.broker.pop.pop_kit import QUICK
from tests.integration.cli.cli_kit import Cometmq
from tests.waiting import eventually

HOST = pack_host(Host("127.0.0.1", 10911))
REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"
SETTINGS = {
    **QUICK,
    **DELAYS,
    "transactionTimeOut": "100",
    "transactionCheckInterval": "100",
    "transactionOpBatchInterval": "50",
}
MANY_DIGITS = "9" * 5000
TARGETS: list[dict[str, str]] = [
    {},
    {"REAL_TOPIC": "Orders"},
    {"REAL_TOPIC": "Orders", "REAL_QID": MANY_DIGITS},
    {"REAL_TOPIC": "Orders", "REAL_QID": str(10**30)},
    {"REAL_TOPIC": "Orders", "REAL_QID": "-1"},
    {"REAL_TOPIC": "Orders", "REAL_QID": "1_0"},
    {"REAL_TOPIC": "Orders", "REAL_QID": "\u0661"},
    {"REAL_TOPIC": "Orders", "REAL_QID": "2000000000"},
    {"REAL_TOPIC": "../../away", "REAL_QID": "0"},
    {"REAL_TOPIC": "T" * 4000, "REAL_QID": "0"},
    {"REAL_TOPIC": TIMER_TOPIC, "REAL_QID": "0"},
    {"REAL_TOPIC": DELAY_TOPIC, "REAL_QID": "0"},
    {"REAL_TOPIC": TRANS_HALF_TOPIC, "REAL_QID": "0"},
    {"REAL_TOPIC": TRANS_OP_HALF_TOPIC, "REAL_QID": "0"},
]
"""Where no message can belong."""
GOOD = {"REAL_TOPIC": "Orders", "REAL_QID": "1"}
FULL = {"FULL": "yes"}
"""Stands for a property that leaves no room for what a service adds."""


def record(topic: str, body: bytes, properties: Mapping[str, str], queue_id: int = 0) -> Record:
    properties = {"UNIQ_KEY": body.decode("latin-1")[:20] or "key", **properties}
    if "FULL" in properties:
        room = MAX_PROPERTIES_LENGTH - len(encode_properties(properties))
        properties = {**properties, "FULL": "x" * (room + len("yes"))}
    return Record(
        topic,
        body,
        encode_properties(properties),
        queue_id=queue_id,
        born_timestamp_ms=now_ms() - 60_000,
        born_host=HOST,
    )


def timers() -> list[Record]:
    past = str(now_ms() // 100 * 100)
    poison = [{"TIMER_OUT_MS": past, **target} for target in TARGETS]
    poison += [{"TIMER_OUT_MS": text, **GOOD} for text in (MANY_DIGITS, "soon", "1_000", str(10**30))]
    poison += [GOOD, {"TIMER_OUT_MS": past, **FULL, **GOOD}]
    good = {"TIMER_OUT_MS": past, "TIMER_ROLL_TIMES": MANY_DIGITS, **GOOD}
    return [*(record(TIMER_TOPIC, b"bad", each) for each in poison), record(TIMER_TOPIC, b"timed", good)]


def delays() -> list[Record]:
    poison = [{"DELAY": "1", **target} for target in TARGETS] + [{"DELAY": MANY_DIGITS}]
    good = {"DELAY": "1", "TIMER_OUT_MS": MANY_DIGITS, **GOOD}
    return [*(record(DELAY_TOPIC, b"bad", each) for each in poison), record(DELAY_TOPIC, b"delayed", good)]


def halves() -> list[Record]:
    poison = [{**transaction("bad"), **target} for target in TARGETS]
    poison.append({**transaction("bad"), **FULL, **GOOD})
    good = {
        **transaction(
            "good", CHECK_IMMUNITY_TIME_IN_SECONDS=MANY_DIGITS, TRANSACTION_CHECK_TIMES=MANY_DIGITS
        ),
        **GOOD,
    }
    records = [record(TRANS_HALF_TOPIC, b"bad", each) for each in poison]
    operations = [b"%d," % 10**30, MANY_DIGITS.encode(), b"999999999,", b"1_0,x,,-1,"]
    records += [record(TRANS_OP_HALF_TOPIC, body, {"TAGS": "d"}) for body in operations]
    return [*records, record(TRANS_HALF_TOPIC, b"committed", good)]


def checkpoint(**changes: object) -> bytes:
    values: dict[str, object] = {
        "topic": "Orders",
        "group": POP_GROUP,
        "count": 1,
        "diffs": [0],
        "pop_time_ms": now_ms() - 10_000,
        "invisible_ms": 1000,
        "broker_name": "embedded",
        **changes,
    }
    return encode_checkpoint(Checkpoint(**values))  # type: ignore[arg-type]


def pops() -> list[Record]:
    day_ms = 86_400_000
    poison = [
        b"",
        b"no JSON",
        b"[]",
        b'{"n":1,"t":"Orders","c":"billing","d":[0],"pt":%d}' % 10**30,
        b'{"n":1,"t":"Orders","c":"billing","d":["x"]}',
        checkpoint(count=127),
        checkpoint(pop_time_ms=now_ms() + 100 * day_ms),
        checkpoint(topic="%RETRY%../../x_Orders", group="billing"),
        checkpoint(start_offset=2**63 - 1, diffs=[2**63 - 1]),
    ]
    records = [record(REVIVE_TOPIC, body, {"TAGS": "ck"}) for body in poison]
    records += [record(REVIVE_TOPIC, body, {"TAGS": "ack"}) for body in (b"", b"{", b'{"ao":"x"}')]
    return [*records, record(REVIVE_TOPIC, checkpoint(), {"TAGS": "ck"})]


async def put_while_stopped(config: StoreConfig, records: list[Record]) -> None:
    store = MessageStore(SystemDisk(), SystemClock(), config, HOST)
    await store.start()
    for each in records:
        assert store.put(each).status is PutStatus.PUT_OK
    await store.stop()


def bodies(kit: BrokerKit, topic: str = "Orders", queue_id: int = 1) -> list[bytes]:
    return [bytes(each.body) for each in kit.stored(topic, queue_id)]


async def renew_client(kit: BrokerKit) -> None:
    """Forget the connections to the broker that was stopped."""
    await kit.client.stop()
    kit.client = RemotingClient()


def shown(folder: Path) -> dict[str, object]:
    ended = Cometmq("127.0.0.1:1")("store", "set-aside", str(folder), "--json")
    assert ended.code == 0, ended
    document: dict[str, object] = json.loads(ended.out)
    return document


async def test_what_cannot_be_processed_stops_nobody_and_is_shown_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """B6, B7, B8: timers, delays, transactions and pops go on behind it, and so do restarts."""
    async with running_broker(tmp_path, SETTINGS) as kit:
        await kit.embedded.create_topic("Orders")
        await kit.send(body=b"popped")
        kit.broker.context.groups.find(POP_GROUP)
        config = kit.broker.context.settings.store
        await kit.embedded.stop_broker()
        lists = [timers(), delays(), halves(), pops()]
        await put_while_stopped(config, [each for records in lists for each in records])
        with caplog.at_level(logging.ERROR, "cometmq.broker"):
            await kit.embedded.start()
            await renew_client(kit)
            async with Producer(kit) as producer:
                producer.on_question = lambda _: COMMIT
                await eventually(
                    lambda: sorted(bodies(kit)) == [b"committed", b"delayed", b"timed"], "all others come"
                )
            retries = f"%RETRY%{POP_GROUP}_Orders"
            await eventually(lambda: bodies(kit, retries, 0) == [b"popped"], "what was popped comes back")
            context = kit.broker.context
            expected = {"timers": 20, "delays": 15, "transactions": 15, "pops": 11}
            await eventually(lambda: context.set_aside.totals == expected, f"these are set aside: {expected}")
            lines = [each.message for each in caplog.records if "set a record aside" in each.message]
            for service in expected:
                assert sum(line.startswith(service) for line in lines) == 10
            await kit.send(body=b"again", queue_id=1, properties={"UNIQ_KEY": "a", "TIMER_DELAY_MS": "200"})
            await kit.send(body=b"later", queue_id=1, properties={"UNIQ_KEY": "b", "DELAY": "1"})
            await eventually(lambda: {b"again", b"later"} <= set(bodies(kit)), "new ones come, too")
            await kit.embedded.stop_broker()
        document = shown(config.root)
        assert document["totals"] == expected
        caplog.clear()
        with caplog.at_level(logging.WARNING, "cometmq.broker"):
            await kit.embedded.start()
            await renew_client(kit)
            await kit.send(body=b"last", queue_id=1, properties={"UNIQ_KEY": "c", "TIMER_DELAY_MS": "200"})
            await eventually(lambda: b"last" in bodies(kit), "timers go on")
            await eventually(
                lambda: kit.broker.context.transactions.checker.offset_in(TRANS_HALF_TOPIC, 0) > 0,
                "looked at",
            )
            await kit.embedded.stop_broker()
        assert [each.message for each in caplog.records if "aside" in each.message] == []
        assert shown(config.root) == document
        await kit.embedded.start()


async def test_a_record_that_was_set_aside_can_be_read_in_the_store(tmp_path: Path) -> None:
    """By the offset that the view names; the table for people has it, too."""
    async with running_broker(tmp_path, SETTINGS) as kit:
        context = kit.broker.context
        bad = record(
            TIMER_TOPIC, b"look at me", {"TIMER_OUT_MS": "1", "REAL_TOPIC": "Orders", "REAL_QID": MANY_DIGITS}
        )
        assert context.store.put(bad).status is PutStatus.PUT_OK
        await eventually(lambda: context.set_aside.totals == {"timers": 1}, "it is set aside")
        config = context.settings.store
        (noted,) = context.set_aside.records
    assert noted.commit_log_offset == bad.physical_offset
    assert "5000 characters" in noted.reason
    cometmq = Cometmq("127.0.0.1:1")
    ended = cometmq("store", "set-aside", str(config.root))
    assert ended.code == 0
    assert "1 record since the store was made: timers 1" in ended.out
    assert TIMER_TOPIC in ended.out
    (dumped,) = dump_topic(SystemDisk(), config.root, TIMER_TOPIC, from_offset=noted.queue_offset, limit=1)
    assert dumped["text"] == "look at me"


async def test_a_store_without_such_records_says_so(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as kit:
        root = kit.broker.context.settings.store.root
    ended = Cometmq("127.0.0.1:1")("store", "set-aside", str(root))
    assert (ended.code, ended.out) == (0, "No record was set aside.\n")
    missing = Cometmq("127.0.0.1:1")("store", "set-aside", str(tmp_path / "elsewhere"))
    assert missing.code == 1
    assert "is no folder" in missing.err


async def test_a_popped_message_that_is_too_large_to_come_back_is_set_aside(tmp_path: Path) -> None:
    """B8: it stays where it was popped, and those behind it come back."""
    async with running_broker(tmp_path, SETTINGS) as kit:
        await kit.embedded.create_topic("Orders")
        context = kit.broker.context
        context.groups.find(POP_GROUP)
        for body, properties in ((b"large", FULL), (b"small", {})):
            assert context.store.put(record("Orders", body, properties)).status is PutStatus.PUT_OK
        both = checkpoint(count=2, diffs=[0, 1])
        assert context.store.put(record(REVIVE_TOPIC, both, {"TAGS": "ck"})).status is PutStatus.PUT_OK
        retries = f"%RETRY%{POP_GROUP}_Orders"
        await eventually(lambda: bodies(kit, retries, 0) == [b"small"], "the other one comes back")
        (noted,) = context.set_aside.records
        assert (noted.service, noted.topic, noted.queue_offset) == ("pops", "Orders", 0)
        offsets = context.offsets
        await eventually(
            lambda: offsets.query("CID_RMQ_SYS_REVIVE_GROUP", REVIVE_TOPIC, 0) >= 0, "the queue goes on"
        )


def damage(kit: BrokerKit, topic: str, queue_id: int = 0) -> None:
    """Make the topic of the last record of a queue no text any more."""
    store = kit.broker.context.store
    queue = store.queues.find(topic, queue_id)
    assert queue is not None
    unit = queue.unit(queue.max_offset - 1)
    assert unit is not None
    view = store.log.view(unit[0], unit[1])
    mapped = store.log.files.at(unit[0])
    assert view is not None
    assert mapped is not None
    at = unit[0] - mapped.start + bytes(view).index(topic.encode())
    mapped.file.buffer[at : at + 1] = b"\xff"


async def test_records_that_cannot_be_decoded_are_set_aside(tmp_path: Path) -> None:
    """B6, B7: damage in the middle of the log costs the messages that it hit, and no others."""
    settings = {**SETTINGS, "timerStopEnqueue": "true", "transactionTimeOut": "1000"}
    async with running_broker(tmp_path, settings) as kit:
        context = kit.broker.context
        for number in (1, 2):
            for properties in ({"DELAY": "1"}, {"TIMER_DELAY_MS": "300"}, transaction(f"t{number}")):
                sent = await kit.send(
                    body=b"%d" % number,
                    queue_id=1,
                    properties={"UNIQ_KEY": f"{number}", **properties},
                    born_timestamp=now_ms(),
                )
                assert sent.code == 0
            if number == 1:
                for topic in (DELAY_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC):
                    damage(kit, topic)
        context.settings.change(
            context.settings.broker, msgspec.structs.replace(context.settings.store, timer_stop_enqueue=False)
        )
        async with Producer(kit) as producer:
            producer.on_question = lambda _: COMMIT
            await eventually(lambda: bodies(kit) == [b"2"] * 3, "the others come")
        assert context.set_aside.totals == {"delays": 1, "timers": 1, "transactions": 1}


async def test_while_the_store_takes_nothing_nothing_is_set_aside(tmp_path: Path) -> None:
    """B6, B8: as with a full disk; all of it comes when the store takes messages again."""
    async with running_broker(tmp_path, SETTINGS) as kit:
        await kit.embedded.create_topic("Orders")
        context = kit.broker.context
        context.groups.find(POP_GROUP)
        await kit.send(body=b"popped")
        await kit.send(body=b"timed", queue_id=1, properties={"UNIQ_KEY": "a", "TIMER_DELAY_MS": "300"})
        await kit.send(body=b"delayed", queue_id=1, properties={"UNIQ_KEY": "b", "DELAY": "1"})
        await kit.send(body=b"half", queue_id=1, properties=transaction("c"), born_timestamp=now_ms())
        assert (
            context.store.put(record(REVIVE_TOPIC, checkpoint(), {"TAGS": "ck"})).status is PutStatus.PUT_OK
        )
        context.store.writer.open(is_open=False)
        due_ms = now_ms() + 1500
        await eventually(lambda: now_ms() > due_ms, "all are due, and were tried")
        assert (bodies(kit), context.set_aside.totals) == ([], {})
        context.store.writer.open()
        async with Producer(kit) as producer:
            producer.on_question = lambda _: COMMIT
            await eventually(lambda: sorted(bodies(kit)) == [b"delayed", b"half", b"timed"], "all come")
        retries = f"%RETRY%{POP_GROUP}_Orders"
        await eventually(lambda: bodies(kit, retries, 0) == [b"popped"], "what was popped comes back")
        assert context.set_aside.totals == {}
