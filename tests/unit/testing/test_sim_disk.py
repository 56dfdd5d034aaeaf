"""The simulated disk loses, keeps, tears and reorders what was not synced, and finds careless writers."""

from __future__ import annotations

import errno
from pathlib import Path
from threading import Thread

import pytest

from cometmq.testing.simulation.disk import (
    CrashMode,
    Rules,
    SimulatedCrash,
    SimulatedDisk,
    SimulatedFile,
    crashes,
)

FOLDER = Path("/store/commitlog")
LOG = FOLDER / "00000000000000000000"
SIZE = 16 * 1024


def a_file(disk: SimulatedDisk, *, synced: bool = True) -> SimulatedFile:
    """A file of 16 KiB with all its room; durable unless said otherwise."""
    file = disk.create(LOG, SIZE)
    file.reserve(0, SIZE)
    if synced:
        file.sync()
        disk.sync_folder(FOLDER)
    return file


def write(file: SimulatedFile, start: int, data: bytes) -> None:
    file.buffer[start : start + len(data)] = data
    file.wrote(start, start + len(data))


def content(disk: SimulatedDisk, path: Path = LOG) -> bytes:
    found = disk.read(path)
    assert found is not None
    return found


def test_what_was_synced_survives_every_crash() -> None:
    disk = SimulatedDisk()
    file = a_file(disk)
    write(file, 100, b"synced")
    file.sync()
    for mode in CrashMode:
        assert content(disk.crash(mode))[100:106] == b"synced"


def test_what_was_not_synced_is_lost_or_kept_as_the_mode_says() -> None:
    disk = SimulatedDisk()
    write(a_file(disk), 100, b"fresh")
    assert content(disk.crash(CrashMode.DROP)) == bytes(SIZE)
    assert content(disk.crash(CrashMode.KEEP))[100:105] == b"fresh"


def test_what_a_killed_process_wrote_is_not_synced_by_its_death() -> None:
    disk = SimulatedDisk()
    file = a_file(disk)
    write(file, 0, b"fresh")
    disk.replace(FOLDER / "other", b"")
    disk.remove(FOLDER / "other")
    for mode in (CrashMode.KEEP, CrashMode.CUT):
        after_kill = disk.crash(mode)
        assert content(after_kill)[:5] == b"fresh"
        assert after_kill.read(FOLDER / "other") is None
        after_power_failure = after_kill.crash(CrashMode.DROP)
        assert content(after_power_failure) == bytes(SIZE)
        assert after_power_failure.read(FOLDER / "other") == b""
        after_kill.open(LOG).sync()
        assert content(after_kill.crash(CrashMode.DROP))[:5] == b"fresh"


def test_a_write_during_a_sync_is_not_covered_by_it() -> None:
    disk = SimulatedDisk()
    file = a_file(disk)
    write(file, 0, b"before")
    disk.on_point(lambda point: write(file, 6, b"during") if point.startswith("sync begins") else None)
    file.sync()
    disk.on_point(None)
    assert content(disk)[:12] == b"beforeduring"
    assert content(disk.crash(CrashMode.DROP))[:12] == b"before" + bytes(6)


def test_sectors_are_torn_one_by_one() -> None:
    disk = SimulatedDisk()
    write(a_file(disk), 0, b"x" * 8192)
    seen = set()
    for seed in range(20):
        after = content(disk.crash(CrashMode.TORN, seed))
        sectors = [after[i : i + 512] for i in range(0, 8192, 512)]
        assert {*sectors} <= {b"x" * 512, bytes(512)}
        assert after[8192:] == bytes(SIZE - 8192)
        seen.add(tuple(sectors))
    assert len(seen) > 10


def test_a_torn_sector_may_hold_any_version_it_ever_had() -> None:
    disk = SimulatedDisk()
    file = a_file(disk)
    for version in (b"1", b"2", b"3"):
        write(file, 0, version)
    assert {content(disk.crash(CrashMode.TORN, seed))[:1] for seed in range(40)} == {b"\0", b"1", b"2", b"3"}


def test_reordered_writes_are_kept_or_lost_whole() -> None:
    disk = SimulatedDisk()
    file = a_file(disk)
    write(file, 0, b"a" * 1000)
    write(file, 2000, b"b" * 1000)
    outcomes = set()
    for seed in range(40):
        after = content(disk.crash(CrashMode.REORDER, seed))
        assert {*after[:1000]} in ({0}, {ord("a")})
        assert {*after[2000:3000]} in ({0}, {ord("b")})
        outcomes.add((after[0], after[2000]))
    assert outcomes == {(0, 0), (97, 0), (0, 98), (97, 98)}


def test_a_kill_may_cut_the_last_write_and_only_that() -> None:
    disk = SimulatedDisk()
    file = a_file(disk)
    write(file, 0, b"old")
    write(file, 10, b"whole")
    write(file, 0, b"new")
    found = {content(disk.crash(CrashMode.CUT, seed))[:15] for seed in range(40)}
    rest = bytes(7) + b"whole"
    assert found == {b"old" + rest, b"nld" + rest, b"ned" + rest, b"new" + rest}


def test_the_same_seed_gives_the_same_crash() -> None:
    def run(seed: int) -> bytes:
        disk = SimulatedDisk(seed)
        write(a_file(disk), 0, b"x" * 8192)
        return content(disk.crash(CrashMode.TORN))

    assert run(7) == run(7)
    assert run(7) != run(8)


def test_a_name_needs_a_sync_of_its_folder_unless_the_rules_are_milder() -> None:
    disk = SimulatedDisk()
    a_file(disk, synced=False).sync()
    assert disk.crash(CrashMode.DROP).read(LOG) is None
    disk.sync_folder(FOLDER)
    assert disk.crash(CrashMode.DROP).read(LOG) == bytes(SIZE)

    mild = SimulatedDisk(rules=Rules(names_need_folder_sync=False))
    a_file(mild, synced=False).sync()
    assert mild.crash(CrashMode.DROP).read(LOG) == bytes(SIZE)


def test_a_file_that_was_never_synced_may_come_back_empty_unless_the_rules_are_milder() -> None:
    for rules, expected in ((Rules(), b""), (Rules(sizes_need_file_sync=False), bytes(SIZE))):
        disk = SimulatedDisk(rules=rules)
        a_file(disk, synced=False)
        disk.sync_folder(FOLDER)
        assert disk.crash(CrashMode.DROP).read(LOG) == expected
    disk = SimulatedDisk()
    a_file(disk, synced=False)
    disk.sync_folder(FOLDER)
    assert {disk.crash(CrashMode.TORN, seed).read(LOG) for seed in range(20)} == {b"", bytes(SIZE)}


def test_a_removed_file_comes_back_if_its_folder_was_not_synced() -> None:
    disk = SimulatedDisk()
    a_file(disk).close()
    disk.remove(LOG)
    assert disk.crash(CrashMode.DROP).read(LOG) == bytes(SIZE)
    assert disk.crash(CrashMode.KEEP).read(LOG) is None
    disk.sync_folder(FOLDER)
    assert disk.crash(CrashMode.DROP).read(LOG) is None


def test_a_replaced_file_is_the_old_or_the_new_one_at_every_point() -> None:
    """B4: configuration survives a kill at any instant."""
    path = Path("/store/config/topics.json")

    def make(stop_at: int | None) -> SimulatedDisk:
        first = SimulatedDisk()
        first.replace(path, b"first")
        first.replace(path, b"second")
        disk = first.crash(CrashMode.KEEP)
        disk.stop_at(stop_at)
        return disk

    seen = set()
    for disk, mode, after in crashes(lambda disk: disk.replace(path, b"third"), make, CrashMode):
        found = (after.read(path), after.read(path.with_name("topics.json.bak")))
        assert found in {
            (b"second", b"first"),
            (b"second", b"second"),
            (b"third", b"second"),
            (b"third", b"first"),
        }, f"{mode} at {disk.last_point}"
        seen.add(found)
    assert len(seen) >= 3


def test_every_point_stops_once_and_the_machine_stays_dead() -> None:
    def workload(disk: SimulatedDisk) -> None:
        file = a_file(disk)
        try:
            write(file, 0, b"one")
            file.sync()
        finally:
            file.close()

    found = crashes(workload, lambda at: SimulatedDisk(stop_at=at), [CrashMode.DROP])
    assert [disk.last_point for disk, _, _ in found] == [
        f"create {LOG}",
        f"reserve {LOG}",
        f"sync begins {LOG}",
        f"sync ends {LOG}",
        f"sync_folder begins {FOLDER}",
        f"sync_folder ends {FOLDER}",
        f"wrote {LOG}",
        f"sync begins {LOG}",
        f"sync ends {LOG}",
    ]
    disk = SimulatedDisk(stop_at=1)
    with pytest.raises(SimulatedCrash):
        disk.create(LOG, SIZE)
    with pytest.raises(SimulatedCrash):
        disk.read(LOG)


def test_a_write_that_is_not_reported_is_found() -> None:
    disk = SimulatedDisk()
    file = a_file(disk)
    file.buffer[5000:5003] = b"sly"
    with pytest.raises(AssertionError, match="changed at 5000, and no write was reported"):
        write(file, 0, b"honest")
    with pytest.raises(AssertionError, match="changed at 5000"):
        file.sync()
    with pytest.raises(AssertionError, match="changed at 5000"):
        disk.crash(CrashMode.KEEP)

    trusting = SimulatedDisk(rules=Rules(check_writes=False))
    file = a_file(trusting)
    file.buffer[5000:5003] = b"sly"
    write(file, 0, b"honest")
    assert content(trusting.crash(CrashMode.KEEP))[5000:5003] == bytes(3)


def test_writing_where_no_room_was_reserved_kills_the_process() -> None:
    file = SimulatedDisk().create(LOG, SIZE)
    file.reserve(0, 4096)
    write(file, 4000, b"x" * 96)
    with pytest.raises(AssertionError, match=r"SIGBUS.*at 4096"):
        write(file, 4090, b"x" * 10)


def test_a_reservation_that_was_not_synced_does_not_survive() -> None:
    disk = SimulatedDisk()
    file = a_file(disk)
    disk.remove(LOG)
    file.close()
    file = disk.create(LOG, SIZE)
    file.reserve(0, 4096)
    file.sync()
    disk.sync_folder(FOLDER)
    file.reserve(4096, 8192)
    after = disk.crash(CrashMode.DROP).open(LOG)
    write(after, 4000, b"fine")
    with pytest.raises(AssertionError, match="SIGBUS"):
        write(after, 4096, b"hole")
    write(disk.crash(CrashMode.KEEP).open(LOG), 8000, b"fine")


def test_a_full_disk_refuses_room_and_gives_it_back() -> None:
    disk = SimulatedDisk(rules=Rules(capacity=5 * 4096))
    file = a_file(disk)
    disk.replace(Path("/store/small"), b"a page")
    usage = disk.usage(FOLDER)
    assert usage is not None
    assert (usage.total, usage.used, usage.usable) == (5 * 4096, 5 * 4096, 0)
    for refused in (
        lambda: disk.create(FOLDER / "next", SIZE),
        lambda: disk.replace(Path("/store/small"), b"another page"),
    ):
        with pytest.raises(OSError, match="No space left") as error:
            refused()
        assert error.value.errno == errno.ENOSPC
    assert disk.read(Path("/store/small")) == b"a page"
    assert [entry.name for entry in disk.entries(Path("/store"))] == ["commitlog", "small"]

    disk.remove(LOG)
    with pytest.raises(OSError, match="No space left"):
        disk.create(FOLDER / "next", SIZE)  # the old one is open still
    file.close()
    disk.create(FOLDER / "next", SIZE).reserve(0, SIZE)


def test_injected_errors_come_as_often_as_asked_for() -> None:
    disk = SimulatedDisk()
    file = a_file(disk)
    disk.fail("sync", LOG, times=1)
    disk.fail("read", number=errno.EACCES)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.sync()
    with pytest.raises(PermissionError):
        disk.read(LOG)
    disk.heal()
    assert disk.read(LOG) == bytes(SIZE)


def test_what_a_failed_sync_was_to_write_is_not_written_by_the_next_one() -> None:
    disk = SimulatedDisk()
    file = a_file(disk)
    write(file, 0, b"lost")
    disk.fail("sync", times=1)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    write(file, 4, b"later")
    file.sync()
    assert content(disk)[:9] == b"lostlater"
    assert content(disk.crash(CrashMode.DROP))[:9] == bytes(4) + b"later"


def test_syncs_on_other_threads_make_durable_what_came_before_them() -> None:
    disk = SimulatedDisk()
    file = a_file(disk)
    write(file, 0, b"before")
    threads = [Thread(target=file.sync) for _ in range(4)]
    for thread in threads:
        thread.start()
    for position in range(100, 200):
        write(file, position, b"x")
    for thread in threads:
        thread.join()
    assert content(disk.crash(CrashMode.DROP))[:6] == b"before"


def test_a_lock_is_held_by_one_and_gone_after_a_crash() -> None:
    disk = SimulatedDisk()
    path = Path("/store/lock")
    assert disk.lock(path) is not None
    assert disk.lock(path) is None
    assert disk.crash(CrashMode.KEEP).lock(path) is not None


def test_a_disk_travels_to_a_real_folder_and_back(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    write(a_file(disk), 9000, b"here")
    disk.replace(Path("/store/config/topics.json"), b"{}")
    disk.dump_to(tmp_path / "copy", Path("/store"))
    assert (tmp_path / "copy/commitlog" / LOG.name).read_bytes() == content(disk)

    copy = SimulatedDisk()
    copy.load_from(tmp_path / "copy", Path("/store"))
    for mode in CrashMode:
        after = copy.crash(mode)
        assert content(after) == content(disk)
        assert after.read(Path("/store/config/topics.json")) == b"{}"
