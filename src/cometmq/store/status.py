"""Put status of a message, and the running flags of a store, in RocketMQ's names and bits.

Rules kept here:
- After the first four put statuses the message is in the log; the three that are not `PUT_OK` say that a copy
  on the disk or on a replica is not known to be safe. After the others it is not in the log; `UNKNOWN_ERROR`
  leaves that open.
- A store accepts writes only while no flag but `NOT_READABLE` is set. Whoever sets a flag clears it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntFlag


class PutStatus(Enum):
    """How a put ended."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    PUT_TO_REMOTE_BROKER_FAIL = "PUT_TO_REMOTE_BROKER_FAIL"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"
    WHEEL_TIMER_FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"

    @property
    def is_stored(self) -> bool:
        """Whether the message is in the log, whatever is known about its copies."""
        return self in _STORED


_STORED = frozenset(
    {
        PutStatus.PUT_OK,
        PutStatus.FLUSH_DISK_TIMEOUT,
        PutStatus.FLUSH_SLAVE_TIMEOUT,
        PutStatus.SLAVE_NOT_AVAILABLE,
    }
)


class Trouble(IntFlag):
    """A running flag; the values are RocketMQ's."""

    NOT_READABLE = 1
    NOT_WRITABLE = 2
    """Set by an administrator, or after a failed sync of the log."""
    QUEUE_ERROR = 4
    """A queue unit could not be written."""
    INDEX_ERROR = 8
    DISK_FULL = 16
    """The partition of the commit log is too full."""
    FENCED = 32
    """A controller has made another broker the master."""
    QUEUE_DISK_FULL = 64
    """The partition of the consume queues is too full."""


_UNWRITABLE = ~Trouble.NOT_READABLE

_DISK_ADVICE = "make room, or keep messages for a shorter time (fileReservedTime)"
_REASONS = {
    Trouble.NOT_WRITABLE: "a sync of the log failed; look at the disk, and start the broker again",
    Trouble.QUEUE_ERROR: f"a queue entry could not be written; {_DISK_ADVICE}",
    Trouble.INDEX_ERROR: f"an index entry could not be written; {_DISK_ADVICE}",
    Trouble.DISK_FULL: f"the disk of the log is too full (diskSpaceWarningLevelRatio); {_DISK_ADVICE}",
    Trouble.QUEUE_DISK_FULL: f"the queues' disk is too full (diskSpaceWarningLevelRatio); {_DISK_ADVICE}",
}


class RunningFlags:
    """The flags of a store; `on_change` is called when they change."""

    def __init__(self) -> None:
        self.troubles = Trouble(0)
        self.on_change: Callable[[], None] | None = None

    @property
    def is_readable(self) -> bool:
        return not self.troubles & Trouble.NOT_READABLE

    @property
    def is_writable(self) -> bool:
        return not self.troubles & _UNWRITABLE

    @property
    def reason(self) -> str | None:
        """Why nothing is written, and what to do; None while writes are accepted."""
        found = [_REASONS.get(each, str(each.name)) for each in self.troubles & _UNWRITABLE]
        return ", and ".join(found) or None

    def set(self, trouble: Trouble, *, on: bool = True) -> bool:
        """Set or clear a flag; returns whether that changed anything."""
        before = self.troubles
        self.troubles = before | trouble if on else before & ~trouble
        if self.troubles == before:
            return False
        if self.on_change is not None:
            self.on_change()
        return True
