"""A store of which parts are missing or damaged starts correctly, or not at all and with a sentence."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq.model.errors import StoreError
from cometmq.ports.disk import SystemDisk
from cometmq.store.queue.files import LOST_SIZE
from cometmq.store.read.reader import GetStatus, MessageReader
from cometmq.store.tools.verify import verify_store
from cometmq.testing.clock import VirtualClock
from cometmq.wire.record.codec import decode_record
from tests.unit.store.log_kit import START_MS
from tests.unit.store.store_kit import LOG_FILE_SIZE, Engine, a_message, files_below, small

COUNT = 300
QUEUES = [("orders", 0), ("orders", 1), ("bills", 0)]

Change = Callable[[Path], None]


def a_store(root: Path, *, killed: bool, **settings: object) -> None:
    """Messages that take several files of the log; everything is on the disk."""
    clock = VirtualClock(START_MS)
    engine = Engine(SystemDisk(), small(root, **settings), clock)
    for number in range(COUNT):
        topic, queue_id = QUEUES[number % 3]
        body = b"%d " % number + b"x" * 700
        engine.put(a_message(body, topic, queue_id, properties_block=b"KEYS\x01k%d\x02" % number))
        clock.advance(100)
    assert engine.close()
    if killed:
        (root / "abort").write_text("1")


def served(engine: Engine) -> dict[tuple[str, int], dict[int, int]]:
    """The numbers of the messages that consumers get, by queue and offset; no offset is asked for twice."""
    reader = MessageReader(engine.files.log, engine.files.queues.find, small(), 1 << 40)
    found: dict[tuple[str, int], dict[int, int]] = {}
    for topic, queue_id in QUEUES:
        offset = 0
        while (result := reader.get(topic, queue_id, offset, 32)).status is not GetStatus.OFFSET_OVERFLOW_ONE:
            for place, view in zip(result.queue_offsets, result.records, strict=True):
                number = int(bytes(decode_record(view, check_crc=True).body).split()[0])
                found.setdefault((topic, queue_id), {})[place] = number
            assert result.next_offset > offset
            offset = result.next_offset
    return found


def all_of(numbers: range | list[int]) -> dict[tuple[str, int], dict[int, int]]:
    """Where these messages belong."""
    found: dict[tuple[str, int], dict[int, int]] = {}
    for number in numbers:
        found.setdefault(QUEUES[number % 3], {})[number // 3] = number
    return found


def log_file(root: Path, index: int) -> Path:
    return root / "commitlog" / f"{index * LOG_FILE_SIZE:020}"


def remove_middle(root: Path) -> None:
    log_file(root, 1).unlink()


def empty_middle(root: Path) -> None:
    log_file(root, 1).write_bytes(b"")


def cut_middle(root: Path) -> None:
    log_file(root, 1).write_bytes(log_file(root, 1).read_bytes()[:30_000])


def remove_last(root: Path) -> None:
    sorted((root / "commitlog").iterdir())[-1].unlink()


def zero_middle(root: Path) -> None:
    data = bytearray(log_file(root, 1).read_bytes())
    data[20_000:40_000] = bytes(20_000)
    log_file(root, 1).write_bytes(data)


def blank_middle(root: Path) -> None:
    data = bytearray(log_file(root, 1).read_bytes())
    at = data.index(b"\xda\xa3\x20\xa7", 30_000)
    data[at : at + 4] = b"\xcb\xd4\x31\x94"
    log_file(root, 1).write_bytes(data)


def remove_log(root: Path) -> None:
    shutil.rmtree(root / "commitlog")


REFUSED = [remove_middle, empty_middle, cut_middle, remove_last, remove_log]
FOUND_AFTER_A_KILL = [zero_middle, blank_middle]


def open_store(root: Path, **settings: object) -> Engine:
    return Engine(SystemDisk(), small(root, **settings), VirtualClock(START_MS + 10_000_000))


def cases() -> list[tuple[Change, bool]]:
    every: list[tuple[Change, bool]] = [(change, killed) for change in REFUSED for killed in (False, True)]
    return every + [(change, True) for change in FOUND_AFTER_A_KILL]


def forget_checkpoint_age(root: Path) -> None:
    """Let a recovery begin with the first file."""
    data = bytearray((root / "checkpoint").read_bytes())
    data[8:16] = bytes(8)
    (root / "checkpoint").write_bytes(data)


@pytest.mark.parametrize(("change", "killed"), cases())
def test_a_log_with_a_hole_is_refused_and_nothing_is_changed(
    change: Change, killed: bool, tmp_path: Path
) -> None:
    """B5: as often as it is tried."""
    a_store(tmp_path, killed=killed)
    if killed:
        forget_checkpoint_age(tmp_path)
    change(tmp_path)
    before = {name: data for name, data in files_below(tmp_path).items() if "commitlog" in name}
    for _ in range(2):
        with pytest.raises(StoreError, match=r"is damaged: .*`cometmq store verify`.*--recover-what-is-left"):
            open_store(tmp_path)

    after = {name: data for name, data in files_below(tmp_path).items() if "commitlog" in name}
    assert after == before
    assert (tmp_path / "abort").exists() == killed


@pytest.mark.parametrize(("change", "killed"), cases())
def test_what_is_left_is_served_and_keeps_its_offsets(
    change: Change, killed: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """B5: consumers pass over the rest, which is logged in a few lines and counted; new messages go on."""
    a_store(tmp_path, killed=killed)
    change(tmp_path)
    caplog.clear()
    engine = open_store(tmp_path, recover_what_is_left=True)
    left = served(engine)
    whole = all_of(range(COUNT))

    for name, messages in left.items():
        assert messages.items() <= whole[name].items()
    assert sum(map(len, left.values())) >= (0 if change is remove_log else COUNT // 2)
    skipped = engine.files.skipped
    assert skipped.messages == COUNT - sum(map(len, left.values()))
    errors = [line for line in caplog.records if line.levelno >= logging.WARNING]
    assert 0 < len(errors) < 12
    for topic, queue_id in QUEUES:
        assert engine.put(a_message(b"300 new", topic, queue_id)).queue_offset == COUNT // 3
    assert engine.close()
    (tmp_path / "abort").write_text("1")

    again = open_store(tmp_path)  # an ordinary store again, also after a kill
    assert {name: {**left.get(name, {}), COUNT // 3: 300} for name in QUEUES} == served(again)
    for messages in left.values():
        for number in messages.values():
            topic = QUEUES[number % 3][0]
            assert again.files.index.find(topic, f"k{number}", 9, 0, 2**63 - 1).physical_offsets
    assert again.close()
    findings = verify_store(SystemDisk(), tmp_path, small(tmp_path)).findings
    assert [str(finding) for finding in findings] == []


def test_missing_first_files_are_retention(tmp_path: Path) -> None:
    """B5"""
    for killed in (False, True):
        root = tmp_path / str(killed)
        a_store(root, killed=killed)
        log_file(root, 0).unlink()
        messages = served(open_store(root))
        assert all(
            messages[name].items() <= every.items() and len(messages[name]) > 50
            for name, every in all_of(range(COUNT)).items()
        )


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("what", ["folder", "last file", "zeroed", "swapped", "all"])
def test_a_queue_that_lost_entries_is_made_anew_from_the_log(what: str, killed: bool, tmp_path: Path) -> None:
    """B5"""
    a_store(tmp_path, killed=killed)
    queue, other = (tmp_path / "consumequeue" / topic / "0" for topic in ("orders", "bills"))
    files = sorted(queue.iterdir())
    if what == "folder":
        shutil.rmtree(queue)
    elif what == "last file":
        files[-1].unlink()
    elif what == "zeroed":
        for file in files[-2:]:
            file.write_bytes(bytes(file.stat().st_size))
    elif what == "swapped":
        mine, others = files[-1].read_bytes(), (other / files[-1].name).read_bytes()
        files[-1].write_bytes(others)
        (other / files[-1].name).write_bytes(mine)
    else:
        shutil.rmtree(tmp_path / "consumequeue")
    engine = open_store(tmp_path)

    assert served(engine) == all_of(range(COUNT))
    assert engine.put(a_message(b"300 new")).queue_offset == COUNT // 3
    assert engine.close()
    assert not verify_store(SystemDisk(), tmp_path, small(tmp_path)).findings


def test_a_topic_that_was_deleted_and_made_again_begins_with_0(tmp_path: Path) -> None:
    """B5: what was saved of its queues is forgotten with it."""
    a_store(tmp_path, killed=False)
    engine = open_store(tmp_path)
    engine.files.forget_queue_ends()
    engine.files.queues.destroy("bills", engine.files.queues.detach_topic("bills"))
    assert engine.put(a_message(b"0 again", "bills", 0)).queue_offset == 0
    assert engine.close()

    assert open_store(tmp_path).put(a_message(b"1 again", "bills", 0)).queue_offset == 1


@pytest.mark.parametrize("name", ["notes.txt", f"{123:020}", f"{LOG_FILE_SIZE * 3 // 2:020}"])
def test_files_of_others_are_refused_with_their_names(name: str, tmp_path: Path) -> None:
    """B5: whatever else is set."""
    a_store(tmp_path, killed=False)
    (tmp_path / "commitlog" / name).write_bytes(bytes(LOG_FILE_SIZE))
    for settings in ({}, {"recover_what_is_left": True}):
        with pytest.raises(StoreError, match=f"{name}.*move"):
            open_store(tmp_path, **settings)


def test_damage_that_an_orderly_start_does_not_meet_is_passed_over_by_consumers(tmp_path: Path) -> None:
    """B5"""
    a_store(tmp_path, killed=False)
    zero_middle(tmp_path)
    engine = open_store(tmp_path)
    left = served(engine)

    assert COUNT - 40 < sum(map(len, left.values())) < COUNT
    assert all(left[name].items() <= every.items() for name, every in all_of(range(COUNT)).items())


def test_a_lost_unit_leads_to_nothing_in_any_log() -> None:
    """B5: nor does it make Apache's broker add up to more than an int."""
    assert LOST_SIZE > 1024**3
    assert LOST_SIZE + 1024**3 - 2 < 1 << 31
