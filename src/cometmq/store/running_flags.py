"""What a store can do at the moment, in the bits that RocketMQ's running flags have.

Rules kept here: a store is written to only while none of the bits is set that speak against it, and each bit
is cleared by whoever set it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntFlag


class Trouble(IntFlag):
    """What may be wrong with a store; the values are those that RocketMQ shows."""

    NOT_READABLE = 1
    NOT_WRITABLE = 2
    """Somebody said so, or the log could not be put on the disk."""
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


class RunningFlags:
    """The troubles that a store has; `on_change` is called when they change."""

    def __init__(self) -> None:
        self.troubles = Trouble(0)
        self.on_change: Callable[[], None] | None = None

    @property
    def is_readable(self) -> bool:
        return not self.troubles & Trouble.NOT_READABLE

    @property
    def is_writable(self) -> bool:
        return not self.troubles & _UNWRITABLE

    def set(self, trouble: Trouble, *, on: bool = True) -> bool:
        """Note that there is a trouble, or that it is over; the answer is whether that is news."""
        before = self.troubles
        self.troubles = before | trouble if on else before & ~trouble
        if self.troubles == before:
            return False
        if self.on_change is not None:
            self.on_change()
        return True
