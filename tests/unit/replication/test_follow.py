"""The slave's side of an HA connection."""

from __future__ import annotations

import hashlib

import pytest

from cometmq.replication.follow import LogFollower
from cometmq.replication.frames import HEAD, REPORT, ReplicationError, Timing
from tests.unit.replication.ha_kit import FILE_SIZE, RECORDED_SHA256, recorded


class Slave:
    """A follower that appends to a log in memory."""

    def __init__(self, content: bytes = b"", start: int = 0) -> None:
        self.content = content
        self.start = start
        self.connect(0.0)

    @property
    def end(self) -> int:
        return self.start + len(self.content)

    def connect(self, now: float) -> bytes:
        self.follower = LogFollower(self.end, FILE_SIZE, Timing(), now)
        return self.follower.report(self.end, now)

    def receive(self, data: bytes, now: float = 0.0) -> bytes:
        """Append, and return the report."""
        for offset, body in self.follower.received(data, now):
            if not self.content and not self.start:
                self.start = offset
            assert offset == self.end
            self.content += body
        return self.follower.report(self.end, now)


def frame(offset: int, body: bytes = b"") -> bytes:
    return HEAD.pack(offset, len(body)) + body


def test_the_end_of_the_own_log_is_reported_at_once() -> None:
    assert Slave(b"x" * 100).connect(0.0) == REPORT.pack(100)
    assert Slave().connect(0.0) == REPORT.pack(0)


def test_frames_are_appended_and_reported() -> None:
    slave = Slave(b"abc")
    assert slave.receive(frame(3, b"def")) == REPORT.pack(6)
    assert slave.receive(frame(6, b"g") + frame(7) + frame(7, b"hi")) == REPORT.pack(9)
    assert slave.content == b"abcdefghi"


def test_a_frame_that_comes_byte_by_byte_is_reported_once_it_is_whole() -> None:
    slave = Slave(b"abc")
    data = frame(3, b"defghi")
    for at in range(len(data) - 1):
        assert slave.receive(data[at : at + 1]) == b""
    assert slave.receive(data[-1:]) == REPORT.pack(9)
    assert slave.content == b"abcdefghi"


def test_a_slave_without_a_log_begins_where_its_master_says() -> None:
    slave = Slave()
    assert slave.receive(frame(FILE_SIZE)) == REPORT.pack(FILE_SIZE)
    assert slave.start == FILE_SIZE
    assert slave.receive(frame(FILE_SIZE, b"abc")) == REPORT.pack(FILE_SIZE + 3)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (frame(99, b"x"), "goes on at 99"),
        (frame(101, b"x"), "goes on at 101"),
        (frame(99), "goes on at 99"),
        (frame(0), "goes on at 0"),
        (frame(-1), "not the HA protocol"),
        (HEAD.pack(100, -1), "not the HA protocol"),
        (HEAD.pack(100, 4 * 1024 * 1024), "not the HA protocol"),
        (HEAD.pack(100, FILE_SIZE), "mappedFileSizeCommitLog"),
        (b"GET / HTTP/1.1\r\n\r\n", "not the HA protocol"),
    ],
)
def test_what_does_not_continue_the_own_log_is_refused(data: bytes, reason: str) -> None:
    slave = Slave(b"x" * 100)
    with pytest.raises(ReplicationError, match=reason):
        slave.receive(data)
    assert slave.content == b"x" * 100


def test_an_empty_slave_refuses_what_is_no_beginning_of_a_file() -> None:
    with pytest.raises(ReplicationError, match="mappedFileSizeCommitLog"):
        Slave().receive(frame(1000))


def test_only_what_is_safe_is_reported() -> None:
    follower = LogFollower(100, FILE_SIZE, Timing(), 0.0)
    assert follower.report(100, 0.0) == REPORT.pack(100)
    list(follower.received(frame(100, b"x" * 50), 0.0))
    assert follower.report(100, 0.0) == b""
    assert follower.report(120, 0.0) == REPORT.pack(120)
    assert follower.report(150, 0.0) == REPORT.pack(150)


def test_heartbeats_are_answered_in_their_own_time_except_the_first() -> None:
    slave = Slave(b"abc")
    slave.connect(0.0)
    assert slave.receive(frame(3), 1.0) == REPORT.pack(3)
    assert slave.receive(frame(3), 5.9) == b""
    assert slave.follower.report(3, 6.0) == REPORT.pack(3)


def test_a_silent_master_is_given_up() -> None:
    slave = Slave()
    slave.follower.check(20.0)
    with pytest.raises(ReplicationError, match="silent"):
        slave.follower.check(20.1)


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_the_recorded_master_leads_to_the_recorded_log_and_reports(step: int) -> None:
    slave = Slave()
    for chunks in recorded():
        now = chunks[0].s
        reports = [slave.connect(now)]
        for chunk in chunks:
            if chunk.to == "slave":
                pieces = (chunk.data[at : at + step] for at in range(0, len(chunk.data), step))
                reports += [slave.receive(piece, now) for piece in pieces]
        wanted = b"".join(chunk.data for chunk in chunks if chunk.to == "master")
        told = [REPORT.unpack(report)[0] for report in reports if report]
        known = [offset for (offset,) in REPORT.iter_unpack(wanted)]
        assert told[0] == known[0]
        assert told[-1] == known[-1]
        # One report for a read that has several frames; the same offsets otherwise.
        assert set(told) <= set(known)
        if step == 1:
            assert told == sorted(set(known))
    assert hashlib.sha256(slave.content).hexdigest() == RECORDED_SHA256
    assert slave.start == FILE_SIZE
