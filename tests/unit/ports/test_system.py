"""What is done on systems that lack something, one by one; see also tests/integration/testing."""

from __future__ import annotations

import errno
import os
import sys
import types
from pathlib import Path

import pytest

from cometmq.ports import descriptors, system


@pytest.mark.parametrize(("number", "is_synced"), [(None, True), (errno.ENOTSUP, True), (errno.EIO, False)])
def test_macos_syncs_through_the_cache_of_the_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None, is_synced: bool
) -> None:
    """B5: a file system that cannot do that is synced as well as it can; an error is an error."""
    asked: list[int] = []
    plain: list[int] = []

    def control(handle: int, command: int) -> None:
        asked.append(command)
        if number is not None:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(system, "fcntl", types.SimpleNamespace(F_FULLFSYNC=51, fcntl=control))
    monkeypatch.setattr(os, "fsync", plain.append)
    if is_synced:
        system._full_sync(3)
    else:
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            system._full_sync(3)
    assert asked == [51]
    assert plain == ([3] if number == errno.ENOTSUP else [])


class Limits:
    """The module `resource` of a system that calls its limit infinite."""

    RLIMIT_NOFILE = 7
    RLIM_INFINITY = -1

    def __init__(self, soft: int, most: int) -> None:
        self.now, self.most = (soft, self.RLIM_INFINITY), most

    def getrlimit(self, _: int) -> tuple[int, int]:
        return self.now

    def setrlimit(self, _: int, wanted: tuple[int, int]) -> None:
        if not 0 <= wanted[0] <= self.most:
            raise ValueError("current limit exceeds maximum limit")
        self.now = wanted


def test_the_limit_is_raised_to_what_macos_permits(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(256, 10_240)
    monkeypatch.setattr(descriptors, "resource", limits)
    descriptors.raise_descriptor_limit()
    assert descriptors.descriptor_limit() == 10_240
    limits.now = (20_000, -1)
    descriptors.raise_descriptor_limit()
    assert descriptors.descriptor_limit() == 20_000, "it is never lowered"


def test_a_system_without_limits_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "resource", None)
    descriptors.raise_descriptor_limit()
    assert descriptors.descriptor_limit() == sys.maxsize


def test_the_memory_of_a_machine_that_does_not_tell_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert system.physical_memory() == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    monkeypatch.delattr(os, "sysconf")
    assert system.physical_memory() == 4 << 30
