"""Tools for tests, of CometMQ and of programs that use it: a clock that jumps, files that fail."""

from cometmq.testing.clock import VirtualClock
from cometmq.testing.files import FailingFiles

__all__ = ["FailingFiles", "VirtualClock"]
