"""The master's side of a connection to a slave.

Rules kept here:
- Nothing is sent before the first report, which says where the slave's log ends. An empty slave gets the log
  from the beginning of the last file on; an offset outside of the log is refused.
- A frame has bytes of one file. The unused end of a file is sent like the rest.
- An acknowledgement is an offset that was sent on this connection. A larger or negative one closes the
  connection, a smaller one than before changes nothing.
- A slave counts as a replica only when it has acknowledged a frame. The first report, which anybody could
  send, acknowledges nothing. So that a slave without anything to read counts soon, its first frame is a
  heartbeat.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from cometmq.replication.frames import HEAD, LARGEST_FRAME, REPORT, ReplicationError, Timing

_SECOND: Final = 1.0
_NOTHING: Final = memoryview(b"")


class SourceLog(Protocol):
    """The commit log that is copied."""

    @property
    def min_offset(self) -> int: ...

    @property
    def max_offset(self) -> int: ...

    @property
    def file_size(self) -> int: ...

    def readable(self, offset: int, most: int) -> memoryview:
        """The written bytes from an offset on, in one file; empty if there are none."""


class FeedSettings(msgspec.Struct, frozen=True):
    """The settings of a master."""

    timing: Timing = Timing()
    batch_bytes: int = 32 * 1024
    """The most bytes of a frame."""
    bytes_per_second: int | None = None
    """The most bytes of a second; None if there is no limit."""


class ReplicaFeed:
    """What a slave has said, and what it was sent."""

    def __init__(self, log: SourceLog, settings: FeedSettings, now: float) -> None:
        self._log = log
        self.settings = settings
        self._partial = b""
        self._start = 0
        self._heard = now
        self._wrote = now
        self._frames = 0
        self._second = now
        self._in_second = 0
        self.has_asked = False
        """Whether the slave has sent its first report."""
        self.sent = 0
        """The offset after the last byte that was sent."""
        self.acked = -1
        """The offset up to which the slave is known to have the log; -1 until it has acknowledged a frame."""

    def received(self, data: bytes, now: float) -> None:
        """Take bytes of the slave; raises `ReplicationError`."""
        self._heard = now
        data = self._partial + data
        whole = len(data) - len(data) % REPORT.size
        self._partial = data[whole:]
        for (offset,) in REPORT.iter_unpack(data[:whole]):
            if self.has_asked:
                self._acknowledge(offset)
            else:
                self._begin(offset)

    def _begin(self, offset: int) -> None:
        first, end = self._log.min_offset, self._log.max_offset
        if offset == 0:
            offset = max(end - end % self._log.file_size, first)
        elif offset > end:
            raise ReplicationError(
                f"its log ends at {offset} and the master's at {end}: one of them is not what it was; "
                "empty the slave's store, or let it be the master"
            )
        elif offset < first:
            raise ReplicationError(
                f"its log ends at {offset} and the master's begins at {first}: the messages between are "
                "deleted; empty the slave's store"
            )
        self.has_asked = True
        self.sent = self._start = offset

    def _acknowledge(self, offset: int) -> None:
        if not 0 <= offset <= self.sent:
            raise ReplicationError(f"it acknowledges {offset}, and was sent the log up to {self.sent}")
        if self._frames and offset >= self._start:
            self.acked = max(self.acked, offset)

    def next_frame(self, now: float) -> tuple[bytes, memoryview] | None:
        """Head and bytes of the next frame; None if there is nothing to send now.

        Raises `ReplicationError` if what is to be sent next is deleted.
        """
        if not self.has_asked:
            return None
        most = min(self.settings.batch_bytes, LARGEST_FRAME, self._allowance(now))
        if most <= 0:
            return None
        body = self._log.readable(self.sent, most)
        if not body:
            if self._frames and now - self._wrote < self.settings.timing.heartbeat_s:
                return None
            if self.sent < self._log.min_offset:
                raise ReplicationError(
                    f"it is at {self.sent}, and the log begins at {self._log.min_offset} now; empty its store"
                )
            body = _NOTHING
        head = HEAD.pack(self.sent, len(body))
        self.sent += len(body)
        self._wrote = now
        self._frames += 1
        self._in_second += HEAD.size + len(body)
        return head, body

    def _allowance(self, now: float) -> int:
        """How many bytes may be sent in this second."""
        limit = self.settings.bytes_per_second
        if limit is None:
            return LARGEST_FRAME
        if now - self._second >= _SECOND:
            self._second, self._in_second = now, 0
        return limit - self._in_second

    def check(self, now: float) -> None:
        """Raise `ReplicationError` if the slave was silent for too long."""
        if now - self._heard > self.settings.timing.silence_s:
            raise ReplicationError(f"it was silent for {now - self._heard:.0f} s")
