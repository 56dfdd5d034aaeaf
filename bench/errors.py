"""Errors of benchmarks, with one root. A benchmark that fails shows no figure."""

from __future__ import annotations


class BenchmarkError(Exception):
    """A benchmark without a result."""


class FrameError(BenchmarkError):
    """Bytes that are no remoting frame, or a frame that cannot be used for load."""


class LoadError(BenchmarkError):
    """A load that broke off: the server closed, fell silent, or sent something else than an answer."""


class ClusterError(BenchmarkError):
    """A name server that refuses the cluster, or has lost it."""
