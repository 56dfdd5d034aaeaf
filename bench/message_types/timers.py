"""Many pending timers: their memory, and sends while some of them are due.

Rules kept here:

- All timers are set before any is due; then as many are due each second, on the second, while sends go on.
- Memory is what is the process's own: pages of mapped files belong to the page cache and are not counted.
- A timer that comes before its time, or is gone without having come, ends the benchmark; how late they are is
  a figure.
- The usual rate of sends is measured on the same broker, before it has timers.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.broker.contest import Contestant, Load, Say, cluster
from bench.broker.load import (
    PULL_MESSAGE,
    QUEUES,
    SEND_MESSAGE_V2,
    create_topic,
    pull_fields,
    queue_ends,
    records,
    send_fields,
    send_frames,
)
from bench.errors import BenchmarkError
from bench.load.frames import Caller, json_request
from bench.load.usage import usage_of

GET_BROKER_RUNTIME_INFO = 28
SENT, TIMED = "bench-sent", "bench-timed"
SENDING, SETTING = Load("sends", 4, 64), Load("timers set", 4, 64)
DUE_A_SECOND = 4_000
SLOWEST_SETTING = 10_000
"""Timers a second: what is due begins when all are set, at this rate."""
DISTINCT_TIMERS = 4_096
CHUNK_SECONDS = 5.0
SETTLE_SECONDS = 60.0
STORE_TIME_AT, BODY_AT = 56, 88
"""Where a record has them; the body begins with the time at which it is due."""
_DUE_DIGITS = 13


@dataclass(slots=True)
class TimerRun:
    """What pending timers cost, and how sends and deliveries went beside each other."""

    pending: int = 0
    private_mb: float = 0.0
    shares: list[float] = field(default_factory=list)
    """Sends beside deliveries, in per cent of the usual rate."""
    late_ms: list[float] = field(default_factory=list)
    """The 99th percentile of each round."""
    delivered: int = 0


def measure(
    home: Path, timers: int, rounds: int, seconds: float, warm_up_seconds: float, say: Say
) -> TimerRun:
    """Set timers, then send while they become due."""
    run = TimerRun()
    with cluster(home, comet=True) as contestant:
        for topic in (SENT, TIMED):
            create_topic(contestant.address, contestant.namesrv, topic)
        frames = send_frames(SENT)
        contestant.run(SENDING, frames, warm_up_seconds)
        usual = median(contestant.run(SENDING, frames, seconds).rate for _ in range(rounds))
        say(f"usual are {usual:,.0f} sends a second")
        first_due = _set(contestant, run, timers, say)
        _wait_for(lambda: time.time() > first_due + 1, first_due - time.time() + 5, "timers are due")
        reader = _Reader(contestant)
        for number in range(rounds):
            rate = contestant.run(SENDING, frames, seconds).rate
            run.shares.append(100 * rate / usual)
            late = sorted(reader.late_ms())
            run.late_ms.append(late[int(len(late) * 0.99)])
            run.delivered += len(late)
            beside = f"{rate:,.0f} sends a second beside {len(late):,} timers"
            say(f"round {number + 1} of {rounds}: {beside}, 99 % of them within {run.late_ms[-1]:.0f} ms")
        _check_none_is_gone(contestant, run)
    return run


def _set(contestant: Contestant, run: TimerRun, timers: int, say: Say) -> int:
    """Set so many timers or a few more, wait until all are in the wheel; when the first of them is due."""
    before_mb = _private_mb(contestant)
    first_due = int(time.time()) + 10 + timers // SLOWEST_SETTING
    spread = timers / DUE_A_SECOND / DISTINCT_TIMERS
    frames = [_timer(number, first_due + int(number * spread)) for number in range(DISTINCT_TIMERS)]
    say(f"setting {timers:,} timers")
    while run.pending < timers:
        left = (timers - run.pending) / SLOWEST_SETTING
        contestant.run(SETTING, frames, min(CHUNK_SECONDS, max(left, 0.2)))
        _wait_for(lambda: _told(contestant, "timerOffsetBehind") == 0, SETTLE_SECONDS, "timers are set")
        run.pending = _told(contestant, "timerCongestNum")
        if time.time() >= first_due:
            raise BenchmarkError("timers were due before all were set: the machine is too slow for so many")
    run.private_mb = _private_mb(contestant) - before_mb
    say(f"{run.pending:,} timers pending take {run.private_mb:.1f} MB")
    return first_due


def _timer(number: int, due: int) -> bytes:
    fields = send_fields(TIMED, number, number % QUEUES, int(time.time() * 1000))
    fields["i"] += f"TIMER_DELIVER_MS\x01{due * 1000}\x02"
    body = b"%d" % (due * 1000)
    return json_request(SEND_MESSAGE_V2, fields, body + bytes(128 - len(body)))


def _private_mb(contestant: Contestant) -> float:
    return usage_of(contestant.broker.pid).private_mb


def _told(contestant: Contestant, name: str) -> int:
    """A figure of those that the broker tells about itself."""
    with Caller(contestant.address) as caller:
        table = json.loads(caller.ask(json_request(GET_BROKER_RUNTIME_INFO, None)).body)["table"]
    return int(table[name])


def _wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise BenchmarkError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.2)


class _Reader:
    """Reads what timers have delivered, each message once."""

    def __init__(self, contestant: Contestant) -> None:
        self._contestant = contestant
        self._read = [0] * QUEUES

    def late_ms(self) -> Iterator[int]:
        """How much later than due each message came that has come since the last time."""
        with Caller(self._contestant.address) as caller:
            for queue_id, end in enumerate(queue_ends(self._contestant.address, TIMED)):
                while self._read[queue_id] < end:
                    fields = pull_fields(TIMED, queue_id, self._read[queue_id])
                    found = list(records(caller.ask(json_request(PULL_MESSAGE, fields)).body))
                    if not found:
                        raise BenchmarkError(f"queue {queue_id} has nothing at {self._read[queue_id]}")
                    self._read[queue_id] += len(found)
                    yield from map(_late_ms, found)


def _late_ms(record: bytes) -> int:
    (stored_ms,) = struct.unpack_from(">q", record, STORE_TIME_AT)
    late = int(stored_ms) - int(record[BODY_AT : BODY_AT + _DUE_DIGITS])
    if late < 0:
        raise BenchmarkError(f"a timer came {-late} ms before its time")
    return late


def _check_none_is_gone(contestant: Contestant, run: TimerRun) -> None:
    """All that were set have come or are pending; between the two a timer is for a moment neither."""

    def is_complete() -> bool:
        pending = _told(contestant, "timerCongestNum")
        return pending + sum(queue_ends(contestant.address, TIMED)) >= run.pending

    _wait_for(is_complete, 10.0, "all timers that were set have come or are pending")
