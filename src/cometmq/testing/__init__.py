"""Tools for tests, of CometMQ and of programs that use it: a clock that jumps, files and disks that fail."""

from cometmq.testing.clock import VirtualClock
from cometmq.testing.files import FailingFiles
from cometmq.testing.sim_disk import CrashMode, Rules, SimulatedCrash, SimulatedDisk, crashes

__all__ = ["CrashMode", "FailingFiles", "Rules", "SimulatedCrash", "SimulatedDisk", "VirtualClock", "crashes"]
