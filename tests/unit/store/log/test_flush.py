"""Flushing: who shares a sync, what is answered when, and what a failure means."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from cometmq.ports.descriptors import NotOpenedError
from cometmq.ports.disk import SystemDisk
from cometmq.store.config import StoreConfig
from cometmq.store.log.flush import Flusher
from cometmq.store.log.mapped_files import PAGE
from cometmq.store.status import PutStatus
from cometmq.testing.simulation.disk import SimulatedDisk
from tests.unit.store.log_kit import ROOT, a_log, config, message
from tests.waiting import eventually

T = TypeVar("T")

OK = PutStatus.PUT_OK
TIMEOUT = PutStatus.FLUSH_DISK_TIMEOUT
PATIENCE_S = 30.0
LONG_MS = 3_600_000


class GatedLog:
    """A log whose syncs begin when they are called and end when a test lets them."""

    def __init__(self) -> None:
        self.max_offset = 0
        self.flushed_offset = 0
        self.syncs = 0
        self.error: OSError | None = None
        self.thread = ""
        self.gate = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)

    def sync(self) -> int:
        upto = self.max_offset
        self.syncs += 1
        self.thread = threading.current_thread().name
        self.begun.release()
        assert self.gate.acquire(timeout=PATIENCE_S)
        if self.error is not None:
            raise self.error
        self.flushed_offset = upto
        return upto

    def append(self, size: int = 100) -> int:
        self.max_offset += size
        return self.max_offset


@pytest.fixture
def worker() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1, thread_name_prefix="flush") as executor:
        yield executor


@pytest.fixture
def log(worker: ThreadPoolExecutor) -> Iterator[GatedLog]:
    gated = GatedLog()
    yield gated
    gated.gate.release(100)  # the worker is not held for ever, whatever a test has left


def quiet(**changes: object) -> StoreConfig:
    """Settings with which nothing is flushed unless somebody asks."""
    rare = {"flush_disk_type": "SYNC_FLUSH", "flush_interval_commit_log": LONG_MS}
    return config(ROOT, **(rare | changes))


@pytest.fixture
async def flusher(log: GatedLog, worker: ThreadPoolExecutor) -> Flusher:
    one = Flusher(log, worker, quiet())
    one.start()
    return one


async def passed(seconds: float) -> None:
    """So much time of the loop has passed."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    await eventually(lambda: loop.time() >= end)


async def begun(log: GatedLog) -> None:
    """The next sync has begun."""
    assert await asyncio.to_thread(log.begun.acquire, timeout=PATIENCE_S)


async def test_nothing_is_answered_before_the_sync_has_ended(log: GatedLog, flusher: Flusher) -> None:
    """B5"""
    waiting = flusher.wait_flushed(log.append())
    await begun(log)
    assert not waiting.done()

    log.gate.release()

    assert await waiting is OK
    assert flusher.flushed_offset == 100
    assert log.thread.startswith("flush")


async def test_all_that_are_appended_in_one_turn_share_one_sync(log: GatedLog, flusher: Flusher) -> None:
    """B5"""
    waiting = [flusher.wait_flushed(log.append()) for _ in range(64)]
    log.gate.release()

    assert set(await asyncio.gather(*waiting)) == {OK}
    assert log.syncs == 1


async def test_who_asks_during_a_sync_shares_the_next_one(log: GatedLog, flusher: Flusher) -> None:
    """B5: what was written after a sync began may be on the disk or not."""
    first = flusher.wait_flushed(log.append())
    await begun(log)
    later = [flusher.wait_flushed(log.append()) for _ in range(10)]

    log.gate.release()
    assert await first is OK
    await begun(log)
    assert not any(one.done() for one in later)

    log.gate.release()
    assert set(await asyncio.gather(*later)) == {OK}
    assert log.syncs == 2


async def test_what_is_on_the_disk_already_is_answered_at_once(log: GatedLog, flusher: Flusher) -> None:
    log.gate.release()
    await flusher.wait_flushed(log.append())
    answers: list[PutStatus] = []

    flusher.when_flushed(50, answers.append)

    assert answers == [OK]
    assert log.syncs == 1


async def test_a_sync_that_takes_too_long_is_answered_as_not_known_to_be_safe(
    log: GatedLog, worker: ThreadPoolExecutor
) -> None:
    """B5"""
    flusher = Flusher(log, worker, quiet(sync_flush_timeout=20))
    flusher.start()
    slow = [flusher.wait_flushed(log.append()) for _ in range(3)]

    assert set(await asyncio.gather(*slow)) == {TIMEOUT}

    log.gate.release()
    await eventually(lambda: flusher.flushed_offset == 300)
    log.gate.release()
    assert await flusher.wait_flushed(log.append()) is OK


async def test_each_waits_for_its_own_time(log: GatedLog, worker: ThreadPoolExecutor) -> None:
    """B5"""
    flusher = Flusher(log, worker, quiet(sync_flush_timeout=40))
    flusher.start()
    loop = asyncio.get_running_loop()
    waited_s: list[float] = []

    def ask() -> asyncio.Future[PutStatus]:
        asked_at = loop.time()
        flusher.when_flushed(log.append(), lambda _: waited_s.append(loop.time() - asked_at))
        return flusher.wait_flushed(log.max_offset)

    first = ask()
    await passed(0.02)
    second = ask()

    assert (await first, await second) == (TIMEOUT, TIMEOUT)
    assert len(waited_s) == 2
    assert min(waited_s) >= 0.04


async def test_a_sync_that_fails_is_never_answered_as_success_and_never_repeated(
    log: GatedLog, worker: ThreadPoolExecutor
) -> None:
    """B5: the disk would say that all is well at the next try, with the pages lost."""
    told: list[BaseException] = []
    flusher = Flusher(log, worker, quiet(), on_failure=told.append)
    flusher.start()
    log.error = OSError(errno.EIO, os.strerror(errno.EIO))
    first = flusher.wait_flushed(log.append())
    await begun(log)
    second = flusher.wait_flushed(log.append())
    log.gate.release()

    assert (await first, await second) == (TIMEOUT, TIMEOUT)
    assert told == [log.error]
    assert flusher.failure is log.error

    log.error = None
    log.gate.release()
    assert await flusher.wait_flushed(log.append()) is TIMEOUT
    flusher.wake()
    assert await flusher.stop() is False
    assert (log.syncs, flusher.flushed_offset) == (1, 0)


async def test_a_sync_for_which_no_file_can_be_opened_is_tried_again_until_it_can(
    log: GatedLog, worker: ThreadPoolExecutor
) -> None:
    """B5: nothing was lost, because nothing was tried. Connections that use up all descriptors go away."""
    told: list[BaseException] = []
    flusher = Flusher(log, worker, quiet(), on_failure=told.append)
    flusher.start()
    log.error = NotOpenedError(errno.EMFILE, os.strerror(errno.EMFILE))
    waiting = flusher.wait_flushed(log.append())
    for _ in range(3):
        await begun(log)
        log.gate.release()
    await begun(log)
    assert not waiting.done()
    log.error = None
    log.gate.release()

    assert await waiting is OK
    assert (told, flusher.failure) == ([], None)
    assert await flusher.stop() is True


async def test_a_real_log_for_which_no_file_can_be_opened_is_safe_once_it_can(
    worker: ThreadPoolExecutor,
) -> None:
    disk = SimulatedDisk()
    commit_log = a_log(disk)
    assert commit_log.append(message(b"hello")) is PutStatus.PUT_OK
    disk.fail("sync", number=errno.EMFILE, times=3)
    flusher = Flusher(commit_log, worker, quiet())
    flusher.start()

    assert await flusher.wait_flushed(commit_log.max_offset) is OK
    assert commit_log.flushed_offset == commit_log.max_offset


async def test_a_real_log_that_cannot_be_synced_stays_unsynced(worker: ThreadPoolExecutor) -> None:
    """B5"""
    disk = SimulatedDisk()
    log = a_log(disk)
    log.prepare_to_append()
    flusher = Flusher(log, worker, quiet())
    flusher.start()
    log.append(message())
    disk.fail("sync", times=1)

    assert await flusher.wait_flushed(log.max_offset) is TIMEOUT
    with pytest.raises(OSError, match="Input/output error"):
        log.sync()
    assert log.flushed_offset == 0


async def test_what_was_answered_as_safe_is_on_a_real_disk(tmp_path: Path) -> None:
    """B5: many senders, files that roll over, and syncs beside the appends."""
    settings = config(tmp_path, flush_disk_type="SYNC_FLUSH", mapped_file_size_commit_log=64 * 1024)
    sent: list[bytes] = []
    with ThreadPoolExecutor(1) as makers, ThreadPoolExecutor(1) as flushers:
        log = a_log(SystemDisk(), executor=makers, settings=settings)
        flusher = Flusher(log, flushers, settings)
        flusher.start()

        async def send(sender: int) -> None:
            for number in range(100):
                sent.append(f"{sender}-{number}".encode() * 50)
                assert log.append(message(sent[-1])) is OK
                assert await flusher.wait_flushed(log.max_offset) is OK

        await asyncio.gather(*(send(sender) for sender in range(8)))
        assert flusher.flushed_offset == log.flushed_offset == log.max_offset
        assert await flusher.stop()
        log.close()

    again = a_log(SystemDisk(), settings=settings)
    assert len(again.files.files) > 3
    assert [bytes(record.body) for record in again.walk(0, check_crc=True)] == sent
    again.close()


async def test_an_answer_that_raises_does_not_cost_the_others_theirs(
    log: GatedLog, flusher: Flusher, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: PutStatus) -> None:
        raise RuntimeError("the connection is gone")

    flusher.when_flushed(log.append(), broken)
    other = flusher.wait_flushed(log.append())
    log.gate.release()

    assert await other is OK
    assert "the connection is gone" in caplog.text


async def test_a_waiter_may_give_up(log: GatedLog, flusher: Flusher) -> None:
    gone, other = flusher.wait_flushed(log.append()), flusher.wait_flushed(log.append())
    gone.cancel()
    log.gate.release()

    assert await other is OK
    assert gone.cancelled()


async def test_stopping_puts_everything_on_the_disk(log: GatedLog, flusher: Flusher) -> None:
    """B5"""
    log.append()
    log.gate.release()

    assert await flusher.stop() is True
    assert (log.flushed_offset, flusher.flushed_offset) == (100, 100)
    assert await flusher.wait_flushed(log.append()) is TIMEOUT
    assert log.syncs == 1


async def test_stopping_waits_for_the_sync_that_runs(log: GatedLog, flusher: Flusher) -> None:
    flusher.wake()
    await begun(log)
    stopping = asyncio.ensure_future(flusher.stop())
    await asyncio.sleep(0)
    assert not stopping.done()

    log.gate.release()
    assert await stopping is True


async def test_a_message_that_nobody_waits_for_is_flushed_soon_in_a_synchronous_log(
    log: GatedLog, flusher: Flusher
) -> None:
    log.append()
    log.gate.release()
    flusher.wake()
    flusher.wake()

    await eventually(lambda: flusher.flushed_offset == 100)
    assert log.syncs == 1


async def test_an_asynchronous_log_is_flushed_when_enough_pages_are_dirty(
    log: GatedLog, worker: ThreadPoolExecutor
) -> None:
    """B5"""
    flushed: list[int] = []
    settings = config(flush_interval_commit_log=5, flush_commit_log_thorough_interval=LONG_MS)
    flusher = Flusher(log, worker, settings, on_flushed=lambda: flushed.append(log.flushed_offset))
    log.gate.release(10)
    flusher.start()
    log.append(4 * PAGE - 1)
    await passed(0.03)
    assert log.syncs == 0

    log.append(1)
    await eventually(lambda: flushed == [4 * PAGE])
    await flusher.stop()


async def test_an_asynchronous_log_is_flushed_whole_every_now_and_then(
    log: GatedLog, worker: ThreadPoolExecutor
) -> None:
    """B5"""
    settings = config(flush_interval_commit_log=2, flush_commit_log_thorough_interval=20)
    flusher = Flusher(log, worker, settings)
    log.gate.release(10)
    flusher.start()
    log.append(1)

    await eventually(lambda: flusher.flushed_offset == 1)
    await flusher.stop()
    assert log.syncs == 1


async def test_an_asynchronous_log_is_woken_only_if_it_is_not_timed(
    log: GatedLog, worker: ThreadPoolExecutor
) -> None:
    log.gate.release()
    timed = Flusher(log, worker, quiet(flush_disk_type="ASYNC_FLUSH"))
    eager = Flusher(log, worker, quiet(flush_disk_type="ASYNC_FLUSH", flush_commit_log_timed=False))
    timed.start()
    eager.start()

    log.append(4 * PAGE - 1)
    eager.wake()
    log.append(1)
    timed.wake()
    await asyncio.to_thread(worker.submit(int).result)
    assert log.syncs == 0

    eager.wake()
    await eventually(lambda: eager.flushed_offset == 4 * PAGE)


async def test_what_follows_from_a_flush_is_done_while_the_next_one_runs(
    log: GatedLog, worker: ThreadPoolExecutor
) -> None:
    """B5: those who wait are answered first."""
    order: list[str] = []

    class Noting(Executor):
        def submit(self, fn: Callable[..., T], /, *args: object, **kwargs: object) -> Future[T]:
            order.append("sync")
            return worker.submit(fn, *args, **kwargs)

    flusher = Flusher(log, Noting(), quiet(), on_flushed=lambda: order.append("told"))
    flusher.start()
    flusher.when_flushed(log.append(), lambda _: order.append("answered"))
    await begun(log)
    second = flusher.wait_flushed(log.append())
    log.gate.release(2)

    assert await second is OK
    await eventually(lambda: not flusher.has_news)
    assert order == ["sync", "answered", "sync", "told", "told"]


async def test_what_follows_from_a_flush_can_be_asked_for_before(
    log: GatedLog, worker: ThreadPoolExecutor
) -> None:
    """B5: whoever was answered may want to see the message at once; and it is done once."""
    told: list[int] = []
    flusher = Flusher(log, worker, quiet(), on_flushed=lambda: told.append(log.flushed_offset))
    flusher.start()
    seen: list[list[int]] = []

    def look(_: PutStatus) -> None:
        flusher.tell()
        seen.append(list(told))

    flusher.when_flushed(log.append(), look)
    log.gate.release(2)
    await eventually(lambda: bool(seen))
    await flusher.stop()

    assert seen == [[100]]
    assert told == [100]


class SlowLog:
    """A log whose syncs take two milliseconds, as they do on many disks, and are counted."""

    def __init__(self) -> None:
        self.max_offset = self.flushed_offset = self.syncs = 0

    def sync(self) -> int:
        upto = self.max_offset
        time.sleep(0.002)
        self.syncs += 1
        self.flushed_offset = upto
        return upto


async def test_many_waiting_senders_share_their_syncs(worker: ThreadPoolExecutor) -> None:
    """B5: so that together they are many times as quick as one."""
    log = SlowLog()
    flusher = Flusher(log, worker, quiet())
    flusher.start()

    async def send(count: int) -> None:
        for _ in range(count):
            log.max_offset += 100
            assert await flusher.wait_flushed(log.max_offset) is OK

    async def messages_a_sync(senders: int, each: int) -> float:
        begun = log.syncs
        await asyncio.gather(*(send(each) for _ in range(senders)))
        return senders * each / (log.syncs - begun)

    assert await messages_a_sync(64, 20) > 20 * await messages_a_sync(1, 20)
    assert await flusher.stop()
