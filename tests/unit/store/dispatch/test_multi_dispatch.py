"""Messages in further queues."""

from __future__ import annotations

import pytest

from cometmq.store.config import StoreConfig
from cometmq.store.status import PutStatus
from cometmq.testing.simulation.disk import CrashMode, SimulatedDisk
from tests.unit.store.log_kit import ROOT
from tests.unit.store.store_kit import Engine, a_message, small


def light(**changes: object) -> StoreConfig:
    return small(ROOT, enable_lmq=True, enable_multi_dispatch=True, **changes)


def naming(*names: str) -> bytes:
    return f"INNER_MULTI_DISPATCH\x01{','.join(names)}\x02".encode()


def bodies_of(engine: Engine, topic: str, queue_id: int = 0) -> list[bytes]:
    log, queue = engine.files.log, engine.files.queues.get(topic, queue_id)
    return [bytes(view)[88:93] for unit in queue.units(0, 99) if (view := log.view(unit[0], unit[1]))]


def filled(disk: SimulatedDisk) -> Engine:
    engine = Engine(disk, light())
    engine.put(a_message(b"first", queue_id=2, properties_block=naming("%LMQ%a", "%LMQ%b")))
    engine.put(a_message(b"other", queue_id=2))
    engine.put(a_message(b"third", queue_id=2, properties_block=naming("%LMQ%b", "bills")))
    return engine


def check(engine: Engine) -> None:
    assert bodies_of(engine, "orders", 2) == [b"first", b"other", b"third"]
    assert bodies_of(engine, "%LMQ%a") == [b"first"]
    assert bodies_of(engine, "%LMQ%b") == [b"first", b"third"]
    assert bodies_of(engine, "bills", 2) == [b"third"]


def test_a_message_is_in_all_queues_that_it_names() -> None:
    """B4: with the offset that each of them gives it, as its properties say."""
    engine = filled(SimulatedDisk())
    check(engine)
    record = a_message(b"later", properties_block=naming("%LMQ%a", "%LMQ%b")[:-1])
    engine.put(record)

    assert record.properties()["INNER_MULTI_QUEUE_OFFSET"] == "1,2"


def test_further_queues_are_announced_as_well() -> None:
    """B8"""
    engine = Engine(SimulatedDisk(), light())
    heard: list[tuple[str, int, int]] = []
    engine.files.dispatcher.arrivals.append(lambda *arrival: heard.append(arrival[:3]))
    engine.put(a_message(queue_id=2, properties_block=naming("%LMQ%a")))

    assert heard == [("orders", 2, 0), ("%LMQ%a", 0, 0)]


@pytest.mark.parametrize("mode", [CrashMode.KEEP, CrashMode.TORN, CrashMode.REORDER])
def test_further_queues_are_recovered(mode: CrashMode) -> None:
    """B5"""
    disk = SimulatedDisk()
    engine = filled(disk)
    engine.sync_log()
    after = Engine(disk.crash(mode), light())
    check(after)
    assert engine.close()
    check(Engine(disk, light()))


@pytest.mark.parametrize("topic", ["%RETRY%group", "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"])
def test_messages_of_the_system_are_in_no_further_queue(topic: str) -> None:
    """B4"""
    engine = Engine(SimulatedDisk(), light())
    engine.put(a_message(topic=topic, properties_block=naming("%LMQ%a")))

    assert engine.files.queues.find("%LMQ%a", 0) is None


def test_there_are_only_so_many_light_queues() -> None:
    """B7: `maxLmqConsumeQueueNum`."""
    engine = Engine(SimulatedDisk(), light(max_lmq_consume_queue_num=1))
    statuses = [
        engine.put(a_message(properties_block=naming(name))).status for name in ("%LMQ%a", "%LMQ%b", "%LMQ%a")
    ]

    assert statuses == [PutStatus.PUT_OK, PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED, PutStatus.PUT_OK]
    assert engine.put(a_message(properties_block=naming("../x"))).status is PutStatus.MESSAGE_ILLEGAL
    assert engine.put(a_message()).queue_offset == 2


def test_without_the_setting_a_message_is_only_in_its_own_queue() -> None:
    """B4"""
    engine = Engine(SimulatedDisk())
    record = a_message(properties_block=naming("%LMQ%a"))
    engine.put(record)

    assert "INNER_MULTI_QUEUE_OFFSET" not in record.properties()
    assert engine.files.queues.find("%LMQ%a", 0) is None
