"""What can go wrong in a benchmark, with one root: a figure that would mean nothing is not shown."""

from __future__ import annotations


class BenchmarkError(Exception):
    """The benchmark has no result, and why."""


class FrameError(BenchmarkError):
    """Bytes that are no remoting frame, or a frame that cannot be used for load."""


class LoadError(BenchmarkError):
    """The load could not be carried on: the server closed, fell silent, or sent what is no answer."""


class ClusterError(BenchmarkError):
    """A name server that does not take the cluster, or does not know it any more."""
