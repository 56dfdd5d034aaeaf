"""Messages that are put many at once, which is the same as one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cometmq.model.sysflag import TransactionType
from cometmq.ports.disk import Disk
from cometmq.store.config import StoreConfig
from cometmq.store.dispatch_rules import put_values
from cometmq.store.put.writer import PlainMessage
from cometmq.store.status import PutStatus, Trouble
from cometmq.testing.clock import VirtualClock
from cometmq.testing.simulation.disk import CrashMode, SimulatedCrash, SimulatedDisk
from cometmq.wire.record.codec import Record
from tests.unit.store.log_kit import BORN_HOST, START_MS
from tests.unit.store.store_kit import LOG_FILE_SIZE, Engine, bodies_in, messages_in, small

IPV6_HOST = bytes(16) + b"\0\0\1\2"


def plain(
    number: int,
    queue_id: int = 0,
    *,
    topic: str = "orders",
    born_host: bytes = BORN_HOST,
    body: bytes | None = None,
    sys_flag: int = 0,
    block: bytes | None = None,
) -> PlainMessage:
    if block is None:
        block = b"UNIQ_KEY\x01%016X\x02KEYS\x01order-%d\x02TAGS\x01paid\x02" % (number, number)
    code, unique_key, keys, _ = put_values(block)
    body = b"body-%d" % number if body is None else body
    born_ms, prepared = START_MS - number, number * 7 if sys_flag else 0
    what = body, block, code, unique_key, keys
    return topic, queue_id, number, sys_flag, born_ms, born_host, 0, prepared, *what


def as_record(message: PlainMessage) -> Record:
    topic, queue_id, flag, sys_flag, born_ms, born_host, consumed, prepared, body, block, *_ = message
    return Record(
        topic,
        body,
        block,
        queue_id=queue_id,
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp_ms=born_ms,
        born_host=born_host,
        reconsume_times=consumed,
        prepared_transaction_offset=prepared,
    )


ODD_ONES: dict[str, Callable[[int], PlainMessage]] = {
    "empty": lambda number: plain(number, body=b""),
    "large": lambda number: plain(number, body=bytes(10_000)),
    "of a transaction": lambda number: plain(number, sys_flag=int(TransactionType.PREPARED)),
    "rolled back": lambda number: plain(number, sys_flag=int(TransactionType.ROLLBACK)),
    "without properties": lambda number: plain(number, block=b""),
    "in an impossible queue": lambda number: plain(number, -1),
    "with too large a flag": lambda number: ("orders", 0, 1 << 40, *plain(number)[3:]),
    "committed": lambda number: plain(number, sys_flag=int(TransactionType.COMMIT)),
    "of another topic": lambda number: plain(number, topic="bills"),
    "of a delayed topic": lambda number: plain(number, topic="SCHEDULE_TOPIC_XXXX"),
    "from a host of the other kind": lambda number: plain(number, born_host=IPV6_HOST),
    "with too many properties": lambda number: plain(number, block=b"a\x01" + b"x" * 40_000 + b"\x02"),
}


def contents(disk: SimulatedDisk, folder: Path) -> dict[Path, bytes]:
    """Every file of a store."""
    disk.dump_to(folder)
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("born_host", [BORN_HOST, IPV6_HOST], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("odd", ODD_ONES)
def test_a_run_leaves_the_same_bytes_and_answers_as_its_messages_one_by_one(
    tmp_path: Path, flush: str, born_host: bytes, odd: str
) -> None:
    """B4, B6: whatever is in it, and however the queues take turns."""
    together, alone = SimulatedDisk(), SimulatedDisk()
    messages = [plain(number, number % 3, born_host=born_host) for number in range(40)]
    messages[17] = ODD_ONES[odd](17)
    config = small(flush_disk_type=flush)
    one, other = Engine(together, config), Engine(alone, config)
    for first in range(0, 40, 20):
        result = one.writer.put_group(messages[first : first + 20])
        results = [other.put(as_record(each)) for each in messages[first : first + 20]]
        stored = [result for result in results if result.status is PutStatus.PUT_OK]
        assert result.offsets == [
            (each.queue_offset, each.physical_offset, each.end_offset - each.physical_offset)
            if each.status is PutStatus.PUT_OK
            else each.status
            for each in results
        ]
        assert result.end_offset == stored[-1].end_offset
        assert result.size == sum(each.end_offset - each.physical_offset for each in stored)
    for engine in (one, other):
        engine.sync_log()
        engine.writer.show_confirmed()
    found = messages_in(one.files)
    assert found == messages_in(other.files)
    assert sum(map(len, found.values())) > 30
    last = result.offsets[-1]
    assert not isinstance(last, PutStatus)
    assert one.files.index.find("orders", "order-39", 10, 0, 2**62).physical_offsets == [last[1]]
    assert one.close()
    assert other.close()
    assert contents(together, tmp_path / "together") == contents(alone, tmp_path / "alone")


def test_what_consumers_see_of_a_run_may_follow_later() -> None:
    """B3, B4: but for what had to be shown before a message that was put alone."""
    engine = Engine(SimulatedDisk())
    engine.writer.put_group([plain(0)])
    left: list[Callable[[], None]] = []
    messages = [plain(1), plain(2), plain(3, body=b""), plain(4), plain(5)]
    result = engine.writer.put_group(messages, left.append)
    assert [place[0] for place in result.offsets if isinstance(place, tuple)] == [1, 2, 3, 4, 5]
    assert bodies_in(engine.files) == [b"body-0", b"body-1", b"body-2", b""]
    (show,) = left
    show()
    assert bodies_in(engine.files)[4:] == [b"body-4", b"body-5"]
    assert engine.files.dispatcher.position == result.end_offset == engine.files.log.max_offset


def test_with_synchronous_flush_a_run_is_not_shown_before_it_is_safe() -> None:
    """B5: nothing is left to be done then."""
    engine = Engine(SimulatedDisk(), small(flush_disk_type="SYNC_FLUSH"))
    left: list[Callable[[], None]] = []
    engine.writer.put_group([plain(0), plain(1)], left.append)
    assert left == []
    assert bodies_in(engine.files) == []
    engine.sync_log()
    assert bodies_in(engine.files) == [b"body-0", b"body-1"]


def test_whoever_listens_to_a_topic_hears_of_no_other() -> None:
    """B3"""
    engine = Engine(SimulatedDisk())
    arrivals, heard = engine.files.dispatcher.arrivals, []

    def hear(topic: str, queue_id: int, offset: int, *_: object) -> None:
        heard.append((topic, offset))

    assert not arrivals
    arrivals.append(hear, "bills")
    assert arrivals
    for topic in ("orders", "bills"):
        engine.writer.put_group([plain(number, topic=topic) for number in range(2)])
    engine.writer.put_group([plain(number, topic=("orders", "bills")[number % 2]) for number in range(5)])
    assert heard == [("bills", 0), ("bills", 1), ("bills", 2), ("bills", 3)]
    arrivals.remove(hear, "bills")
    assert not arrivals
    engine.writer.put_group([plain(3, topic="bills")])
    assert len(heard) == 4


def test_a_run_goes_on_in_the_next_file() -> None:
    """B4"""
    engine = Engine(SimulatedDisk())
    messages = [plain(number, body=bytes(1000)) for number in range(3 * LOG_FILE_SIZE // 1000)]
    result = engine.writer.put_group(messages)

    assert [place[0] for place in result.offsets if isinstance(place, tuple)] == list(range(len(messages)))
    assert len(engine.files.log.files.files) >= 3
    assert len(bodies_in(engine.files)) == len(messages)


def test_a_store_that_takes_nothing_takes_no_run() -> None:
    """B5"""
    engine = Engine(SimulatedDisk())
    engine.flags.set(Trouble.NOT_WRITABLE)
    result = engine.writer.put_group([plain(1), plain(2)])

    assert result.offsets == [PutStatus.SERVICE_NOT_AVAILABLE] * 2
    assert (result.end_offset, result.size, engine.files.log.max_offset) == (-1, 0, 0)


def test_consumers_see_a_run_when_it_is_on_the_disk() -> None:
    """B4, B5: with synchronous flush, and hear of each of its messages then."""
    engine = Engine(SimulatedDisk(), small(flush_disk_type="SYNC_FLUSH"))
    heard: list[tuple[int, int]] = []
    engine.files.dispatcher.arrivals.append(
        lambda topic, queue_id, offset, *_: heard.append((queue_id, offset))
    )
    for _ in range(2):
        engine.writer.put_group([plain(number, number % 2) for number in range(6)])
    assert heard == []
    engine.sync_log()

    assert sorted(heard) == [(queue_id, offset) for queue_id in range(2) for offset in range(6)]
    assert len(bodies_in(engine.files)) == 6


def test_whoever_waits_hears_of_each_message_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    """B3: the messages are there, and the others hear of them all the same."""
    engine = Engine(SimulatedDisk())
    heard: list[int] = []

    def fail(*_: object) -> None:
        raise RuntimeError("not me")

    engine.files.dispatcher.arrivals.append(fail)
    engine.files.dispatcher.arrivals.append(lambda topic, queue_id, offset, *_: heard.append(offset))
    engine.writer.put_group([plain(number) for number in range(5)])

    assert heard == list(range(5))
    assert caplog.text.count("a listener failed at the arrival") == 5
    assert len(bodies_in(engine.files)) == 5


def test_units_that_found_no_room_are_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """B5: nothing more is taken meanwhile, and nothing is lost or there twice."""
    engine = Engine(SimulatedDisk())
    engine.writer.put_group([plain(number) for number in range(3)])
    put_all = engine.files.index.put_all

    def full(_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(engine.files.index, "put_all", full)
    result = engine.writer.put_group([plain(number) for number in range(3, 9)])
    assert len([place for place in result.offsets if isinstance(place, tuple)]) == 6
    refused = engine.writer.put_group([plain(9)])
    assert refused.offsets == [PutStatus.SERVICE_NOT_AVAILABLE]
    monkeypatch.setattr(engine.files.index, "put_all", put_all)
    engine.writer.show_confirmed()

    assert len(bodies_in(engine.files)) == 9
    places = [place[1] for place in result.offsets if isinstance(place, tuple)]
    for number, place in enumerate(places, 3):
        assert engine.files.index.find("orders", f"order-{number}", 9, 0, 2**62).physical_offsets == [place]


def killed_groups(config: StoreConfig, groups: Sequence[Sequence[PlainMessage]]) -> list[SimulatedDisk]:
    """The disk after every point of the run at which the process can be killed."""
    complete = SimulatedDisk()
    _put_groups(complete, config, groups)
    disks = []
    for point in range(1, complete.points + 1):
        disk = SimulatedDisk(point, stop_at=point)
        try:
            _put_groups(disk, config, groups)
        except SimulatedCrash:
            disks.append(disk)
    return disks


def _put_groups(disk: Disk, config: StoreConfig, groups: Sequence[Sequence[PlainMessage]]) -> None:
    engine = Engine(disk, config)
    for messages in groups:
        engine.writer.put_group(messages)


def test_a_kill_leaves_whole_runs() -> None:
    """B4, B5: one that was not finished is not there at all, and the store goes on behind the others."""
    sizes = (1, 4, 5, 6)  # the first message makes the queue, and is put alone
    numbers = iter(range(100))
    groups = [[plain(next(numbers)) for _ in range(size)] for size in sizes]
    whole = {0, 1, 5, 10, 16}
    seen = set()
    for disk in killed_groups(small(), groups):
        engine = Engine(disk.crash(CrashMode.KEEP), small(), VirtualClock(START_MS + 1000))
        found = bodies_in(engine.files)
        assert found == [b"body-%d" % number for number in range(len(found))]
        assert len(found) in whole
        seen.add(len(found))
        result = engine.writer.put_group([plain(99)])
        assert result.offsets[0][0] == len(found)  # type: ignore[index]
    assert seen == whole
