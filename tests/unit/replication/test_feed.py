"""The master's side of an HA connection."""

from __future__ import annotations

import random

import pytest

from cometmq.replication.feed import FeedSettings, ReplicaFeed
from cometmq.replication.frames import HEAD, REPORT, ReplicationError
from tests.unit.replication.ha_kit import (
    FILE_SIZE,
    RECORDED_START,
    MemoryLog,
    frames_of,
    recorded,
    recorded_log,
)

LOG = bytes(range(256)) * 600  # 153,600 bytes: two files and a part of a third


def feed_of(log: MemoryLog, settings: FeedSettings | None = None) -> ReplicaFeed:
    return ReplicaFeed(log, settings or FeedSettings(), now=0.0)


def sent(feed: ReplicaFeed, now: float = 0.0) -> bytes:
    """Everything that is to be sent now."""
    found = b""
    while (frame := feed.next_frame(now)) is not None:
        found += frame[0] + bytes(frame[1])
    return found


def test_sends_nothing_before_the_first_report() -> None:
    feed = feed_of(MemoryLog(LOG))
    assert feed.next_frame(100.0) is None
    feed.received(REPORT.pack(1000)[:7], 0.0)
    assert feed.next_frame(100.0) is None


def test_sends_the_log_from_the_reported_offset_and_never_across_a_file() -> None:
    feed = feed_of(MemoryLog(LOG))
    feed.received(REPORT.pack(50_000), 0.0)
    frames = frames_of(sent(feed))
    assert b"".join(body for _, body in frames) == LOG[50_000:]
    assert [(offset, len(body)) for offset, body in frames] == [
        (50_000, 15_536),
        (65_536, 32_768),
        (98_304, 32_768),
        (131_072, 22_528),
    ]


def test_an_empty_slave_gets_the_last_file() -> None:
    feed = feed_of(MemoryLog(LOG))
    feed.received(REPORT.pack(0), 0.0)
    assert frames_of(sent(feed)) == [(2 * FILE_SIZE, LOG[2 * FILE_SIZE :])]


def test_an_empty_slave_of_an_empty_master_gets_a_heartbeat_and_then_the_log() -> None:
    log = MemoryLog()
    feed = feed_of(log)
    feed.received(REPORT.pack(0), 0.0)
    assert sent(feed) == HEAD.pack(0, 0)
    log.content = b"first"
    assert sent(feed) == HEAD.pack(0, 5) + b"first"


def test_heartbeats_have_the_next_offset_and_follow_silence_only() -> None:
    log = MemoryLog(LOG)
    feed = feed_of(log)
    feed.received(REPORT.pack(len(LOG) - 1), 0.0)
    assert sent(feed) == HEAD.pack(len(LOG) - 1, 1) + LOG[-1:]
    assert sent(feed, 4.9) == b""
    assert sent(feed, 5.0) == HEAD.pack(len(LOG), 0)
    assert sent(feed, 9.9) == b""


@pytest.mark.parametrize("cut", range(1, 8))
def test_reports_are_read_however_they_are_split(cut: int) -> None:
    feed = feed_of(MemoryLog(LOG))
    reports = REPORT.pack(1000)
    feed.received(reports[:cut], 0.0)
    feed.received(reports[cut:], 0.0)
    sent(feed)
    acknowledged = REPORT.pack(2000) + REPORT.pack(3000)
    for at in range(0, len(acknowledged), cut):
        feed.received(acknowledged[at : at + cut], 0.0)
    assert feed.acked == 3000


@pytest.mark.parametrize(
    ("offset", "reason"),
    [(-1, "begins at"), (len(LOG) + 1, "ends at"), (2**63 - 1, "ends at"), (100, "deleted")],
)
def test_a_first_report_outside_of_the_log_is_refused(offset: int, reason: str) -> None:
    feed = feed_of(MemoryLog(LOG[FILE_SIZE:], FILE_SIZE))
    with pytest.raises(ReplicationError, match=reason):
        feed.received(REPORT.pack(offset), 0.0)
    assert feed.next_frame(0.0) is None


@pytest.mark.parametrize("forged", [-1, -(2**63), 1001 + 32_768, 2**63 - 1])
def test_an_acknowledgement_of_what_was_not_sent_is_refused(forged: int) -> None:
    feed = feed_of(MemoryLog(LOG))
    feed.received(REPORT.pack(1000), 0.0)
    feed.next_frame(0.0)
    with pytest.raises(ReplicationError, match="acknowledges"):
        feed.received(REPORT.pack(forged), 0.0)
    assert feed.acked == -1


def test_the_first_report_and_those_before_a_frame_acknowledge_nothing() -> None:
    feed = feed_of(MemoryLog(LOG))
    feed.received(REPORT.pack(len(LOG)) * 3, 0.0)
    assert feed.acked == -1
    sent(feed)  # a heartbeat
    feed.received(REPORT.pack(len(LOG)), 0.0)
    assert feed.acked == len(LOG)


def test_acknowledgements_never_go_down() -> None:
    feed = feed_of(MemoryLog(LOG))
    feed.received(REPORT.pack(1000), 0.0)
    sent(feed)
    for offset in (5000, 4000, 0):
        feed.received(REPORT.pack(offset), 0.0)
    assert feed.acked == 5000


def test_a_slave_whose_next_bytes_are_deleted_is_refused() -> None:
    log = MemoryLog(LOG)
    feed = feed_of(log)
    feed.received(REPORT.pack(1000), 0.0)
    log.content, log.min_offset = LOG[FILE_SIZE:], FILE_SIZE
    with pytest.raises(ReplicationError, match="begins at 65536 now"):
        sent(feed)


def test_a_silent_slave_is_given_up() -> None:
    feed = feed_of(MemoryLog(LOG))
    feed.check(20.0)
    feed.received(b"\0", 15.0)
    feed.check(35.0)
    with pytest.raises(ReplicationError, match="silent"):
        feed.check(35.1)


def test_flow_control_counts_heads_and_bodies() -> None:
    feed = feed_of(MemoryLog(LOG), FeedSettings(bytes_per_second=10_000, batch_bytes=1000))
    feed.received(REPORT.pack(0x100), 0.0)
    first = sent(feed)
    assert 10_000 <= len(first) < 10_000 + HEAD.size + 1
    assert sent(feed, 0.9) == b""
    assert 10_000 <= len(sent(feed, 1.0)) < 10_000 + HEAD.size + 1


def test_random_reports_never_count_more_than_was_sent() -> None:
    chance = random.Random(7)
    for _ in range(500):
        log = MemoryLog(LOG)
        feed = feed_of(log, FeedSettings(batch_bytes=chance.choice((1, 100, 32_768))))
        try:
            for _ in range(20):
                if chance.random() < 0.5:
                    feed.next_frame(0.0)
                near = feed.sent + chance.randrange(-10, 3)
                offset = chance.choice((near, chance.randrange(-(2**63), 2**63), len(LOG), 0))
                report = REPORT.pack(offset)
                feed.received(report[: chance.choice((8, 8, 8, 3))], 0.0)
                assert feed.acked <= feed.sent <= log.max_offset
        except ReplicationError:
            assert feed.acked <= feed.sent


def test_the_recorded_slave_gets_the_recorded_frames() -> None:
    """The master's frames of the recording, byte for byte, when our master has the same log at that time."""
    content = recorded_log()
    for chunks in recorded():
        stream = b"".join(chunk.data for chunk in chunks if chunk.to == "slave")
        log = MemoryLog(start=RECORDED_START)
        feed = None
        frames = frames_of(stream)
        first = chunks[0]
        assert first.to == "master"
        # The log grows as fast as in the recording: up to the end of what was sent together.
        log.content = content[: _first_burst(frames) - RECORDED_START]
        feed = ReplicaFeed(log, FeedSettings(), now=first.s)
        feed.received(first.data, first.s)
        got = sent(feed, first.s)
        now = first.s
        while len(got) < len(stream):
            offset, body = frames_of(stream[len(got) :])[0]
            if body:
                log.content = content[: offset + len(body) - RECORDED_START]
            else:
                now += 5
            more = sent(feed, now)
            assert more
            got += more
        assert got == stream
        for chunk in chunks[1:]:
            if chunk.to == "master":
                feed.received(chunk.data, now)
        assert feed.acked == log.max_offset


def _first_burst(frames: list[tuple[int, bytes]]) -> int:
    """Where the log ended when the slave connected: full frames, and frames to the end of a file, have more
    behind them."""
    for offset, body in frames:
        end = offset + len(body)
        if len(body) < 32_768 and end % FILE_SIZE:
            return end
    raise AssertionError("the recording has no such frame")
