"""After a start every message of the log that has keys is found by them, whatever became of the index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq.store.config import StoreConfig
from cometmq.store.tools.verify import verify_store
from cometmq.testing.clock import VirtualClock
from cometmq.testing.simulation.disk import CrashMode, SimulatedDisk
from tests.unit.store.log_kit import START_MS
from tests.unit.store.store_kit import Engine, a_message, small

EVER = 2**63 - 1
MESSAGES = 400


def an_engine(disk: SimulatedDisk, config: StoreConfig) -> Engine:
    return Engine(disk, config, VirtualClock(START_MS + 10_000_000))


def fill(engine: Engine, *, count: int = MESSAGES, first: int = 0, keyed: bool = True) -> None:
    """Messages that take several files of the log and of the index; some files' worth is known to be safe."""
    for number in range(first, first + count):
        block = b"UNIQ_KEY\x01U%d\x02KEYS\x01k%d all\x02" % (number, number) if keyed else b""
        engine.put(a_message(b"x" * 500, "orders", number % 3, properties_block=block))
        engine.clock.advance(100)  # type: ignore[attr-defined]
        if number % 50 == 20:
            engine.sync_log()
            engine.files.sync_derived(engine.files.dispatcher.last_store_time_ms, thorough=True)


def lost_keys(engine: Engine, count: int = MESSAGES) -> list[str]:
    keys = [name for number in range(count) for name in (f"U{number}", f"k{number}")]
    found = engine.files.index.find
    return [key for key in keys if len(found("orders", key, 64, 0, EVER).physical_offsets) != 1]


def index_files(disk: SimulatedDisk, config: StoreConfig) -> list[Path]:
    return [config.root / "index" / entry.name for entry in disk.entries(config.root / "index")]


def zero(disk: SimulatedDisk, path: Path, start: int = 0, end: int | None = None) -> None:
    file = disk.open(path)
    end = file.size if end is None else end
    file.reserve(start, end)
    file.buffer[start:end] = bytes(end - start)
    file.wrote(start, end)
    file.close()


def nothing(_: SimulatedDisk, __: StoreConfig) -> None:
    """Leave the index as it is."""


def remove_last(disk: SimulatedDisk, config: StoreConfig) -> None:
    disk.remove(index_files(disk, config)[-1])


def remove_first(disk: SimulatedDisk, config: StoreConfig) -> None:
    disk.remove(index_files(disk, config)[0])


def remove_one_in_the_middle(disk: SimulatedDisk, config: StoreConfig) -> None:
    files = index_files(disk, config)
    disk.remove(files[len(files) // 2])


def remove_folder(disk: SimulatedDisk, config: StoreConfig) -> None:
    for path in index_files(disk, config):
        disk.remove(path)
    disk.remove(config.root / "index")


def zero_header_of_last(disk: SimulatedDisk, config: StoreConfig) -> None:
    zero(disk, index_files(disk, config)[-1], 0, 40)


def zero_last(disk: SimulatedDisk, config: StoreConfig) -> None:
    zero(disk, index_files(disk, config)[-1])


def remove_checkpoint(disk: SimulatedDisk, config: StoreConfig) -> None:
    disk.remove(config.root / "checkpoint")


def zero_checkpoint(disk: SimulatedDisk, config: StoreConfig) -> None:
    zero(disk, config.root / "checkpoint")


def spoil_slots_of_last(disk: SimulatedDisk, config: StoreConfig) -> None:
    zero(disk, index_files(disk, config)[-1], 40, 40 + 4 * config.max_hash_slot_num)


DAMAGE = [
    nothing,
    remove_last,
    remove_first,
    remove_one_in_the_middle,
    remove_folder,
    zero_header_of_last,
    zero_last,
]


@pytest.mark.parametrize("entries", [50, 10_000])
@pytest.mark.parametrize("damage", [*DAMAGE, remove_checkpoint, zero_checkpoint, spoil_slots_of_last])
def test_after_a_kill_every_key_is_found(
    damage: Callable[[SimulatedDisk, StoreConfig], None], entries: int
) -> None:
    """B4, B5: also when recovery begins behind the first file of the log."""
    config = small(max_index_num=entries)
    disk = SimulatedDisk()
    fill(Engine(disk, config))
    disk = disk.crash(CrashMode.KEEP)
    damage(disk, config)
    engine = an_engine(disk, config)

    assert engine.recovered.start > 0 or damage in (remove_checkpoint, zero_checkpoint)
    assert lost_keys(engine) == []
    assert engine.close()
    assert not verify_store(disk, config.root, config).findings


@pytest.mark.parametrize("entries", [50, 10_000])
@pytest.mark.parametrize("damage", DAMAGE)
def test_after_an_orderly_stop_a_damaged_index_is_completed(
    damage: Callable[[SimulatedDisk, StoreConfig], None], entries: int
) -> None:
    """B5"""
    config = small(max_index_num=entries)
    disk = SimulatedDisk()
    engine = Engine(disk, config)
    fill(engine)
    assert engine.close()
    damage(disk, config)
    engine = an_engine(disk, config)

    assert lost_keys(engine) == []
    assert engine.close()
    assert not verify_store(disk, config.root, config).findings


def test_what_was_stored_without_an_index_is_indexed_once_there_is_one() -> None:
    """B5"""
    disk = SimulatedDisk()
    engine = Engine(disk, small(message_index_enable=False))
    fill(engine)
    assert engine.close()

    assert lost_keys(an_engine(disk, small())) == []


def test_messages_without_keys_make_no_index() -> None:
    """B5: and none is looked for again and again."""
    disk = SimulatedDisk()
    engine = Engine(disk, small())
    fill(engine, keyed=False)
    assert engine.close()
    engine = an_engine(disk, small())

    assert len(engine.files.index) == 0


@pytest.mark.parametrize("entries", [50, 10_000])
def test_a_message_whose_keys_are_not_in_the_index_is_found_by_a_verification(entries: int) -> None:
    """B5: at its beginning, in its middle, at its end, and where there is no index at all."""
    for damage in (remove_first, remove_one_in_the_middle, remove_last, remove_folder):
        config = small(max_index_num=entries)
        disk = SimulatedDisk()
        engine = Engine(disk, config)
        fill(engine)
        assert engine.close()
        damage(disk, config)
        findings = verify_store(disk, config.root, config).findings
        assert any("keys" in str(finding) for finding in findings), damage
