"""The slave's side of a connection to its master.

Rules kept here:
- The first report says where the own log ends. Every frame has to begin there, heartbeats too; only a slave
  without a log takes any beginning of a file. Nothing that the slave has is ever overwritten.
- Bytes are given out as they come, so that a frame of any size takes no memory.
- The end of the last whole frame is reported, as far as it is safe; again after the heartbeat interval. The
  first frame is answered even if it is a heartbeat: from then on the master counts this slave.
"""

from __future__ import annotations

from collections.abc import Iterator

from cometmq.replication.frames import HEAD, LARGEST_FRAME, REPORT, ReplicationError, Timing


class LogFollower:
    """What a master has sent, and what it was told.

    `end` is the offset at which the own log ends, 0 if there is none.
    """

    def __init__(self, end: int, file_size: int, timing: Timing, now: float) -> None:
        self._file_size = file_size
        self._timing = timing
        self._partial = b""
        self._left = 0
        self._offset = end
        self._heard = now
        self._reported_at = now
        self._reported = -1
        self._owes_answer = False
        self._frames = 0
        self.end = end
        """The offset after the last whole frame."""

    def received(self, data: bytes, now: float) -> Iterator[tuple[int, memoryview]]:
        """Take bytes of the master: yields offset and bytes of what has to be appended to the log.

        An offset without bytes is where an empty log has to begin. Raises `ReplicationError`.
        """
        self._heard = now
        view = memoryview(data)
        while view:
            if self._left:
                body = view[: self._left]
                view = view[len(body) :]
                offset = self._offset
                self._left -= len(body)
                self._offset += len(body)
                yield offset, body
                if not self._left:
                    self.end = self._offset
                continue
            missing = HEAD.size - len(self._partial)
            self._partial += view[:missing]
            view = view[missing:]
            if len(self._partial) == HEAD.size:
                offset, size = HEAD.unpack(self._partial)
                self._partial = b""
                was_empty = self._offset == 0
                self._enter(offset, size)
                if was_empty and offset:
                    yield offset, memoryview(b"")

    def _enter(self, offset: int, size: int) -> None:
        """Begin a frame."""
        if offset < 0 or not 0 <= size <= LARGEST_FRAME:
            raise ReplicationError(
                f"it sent a frame of {size} bytes at {offset}; that is not the HA protocol"
            )
        file_size = self._file_size
        if self._offset == 0:
            if offset % file_size:
                raise ReplicationError(
                    f"it begins at {offset}, which is no beginning of a file of {file_size} bytes; "
                    "mappedFileSizeCommitLog has to be the same on master and slave"
                )
            self._offset = offset
        elif offset != self._offset:
            raise ReplicationError(
                f"it goes on at {offset}, and the own log ends at {self._offset}; if that stays so, empty "
                "the slave's store"
            )
        if size and offset // file_size != (offset + size - 1) // file_size:
            raise ReplicationError(
                f"it sent {size} bytes at {offset}, which do not fit into a file of {file_size}; "
                "mappedFileSizeCommitLog has to be the same on master and slave"
            )
        self._left = size
        self._frames += 1
        if not size:
            self.end = offset
            self._owes_answer |= self._frames == 1

    def report(self, safe_offset: int, now: float) -> bytes:
        """The report that is due; empty if none is.

        `safe_offset` is the offset up to which the own log is as safe as the settings ask for.
        """
        offset = max(min(safe_offset, self.end), self._reported)
        if (
            offset == self._reported
            and not self._owes_answer
            and now - self._reported_at < self._timing.heartbeat_s
        ):
            return b""
        self._owes_answer = False
        self._reported, self._reported_at = offset, now
        return REPORT.pack(offset)

    def check(self, now: float) -> None:
        """Raise `ReplicationError` if the master was silent for too long."""
        if now - self._heard > self._timing.silence_s:
            raise ReplicationError(f"it was silent for {now - self._heard:.0f} s")
