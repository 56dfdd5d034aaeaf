"""File descriptors: how many the process may have, and a few spare ones for the files of the store.

Rules kept here:
- Connections can use up all descriptors. The store must go on then: some descriptors are held back, and given
  up while a file has to be open.
- A file that could not be opened is a `NotOpenedError`. Nothing was done to it, so trying again later is
  right; a sync that fails for any other reason must never be tried again.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Final, TypeVar

from cometmq.ports.system import BINARY

resource: ModuleType | None
try:
    import resource
except ImportError:  # Windows: sockets are no descriptors there
    resource = None

T = TypeVar("T")

SPARE_DESCRIPTORS: Final = 16
"""Descriptors held back: one for each thread of a store that may open a file, and some."""

_NONE_LEFT: Final = (errno.EMFILE, errno.ENFILE)
_CANNOT_OPEN: Final = (*_NONE_LEFT, errno.ENOMEM)

_changing = Lock()
_held: list[int] = []


_MOST_ON_MACOS: Final = 10_240
"""`OPEN_MAX`: macOS calls the limit infinite, and refuses more than this."""


def descriptor_limit() -> int:
    """Returns how many descriptors the process may have; `sys.maxsize` for no limit."""
    if resource is None:
        return sys.maxsize
    soft: int = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> None:
    """Allow as many open connections and files as the system permits."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        if soft < _MOST_ON_MACOS:
            resource.setrlimit(resource.RLIMIT_NOFILE, (_MOST_ON_MACOS, hard))


class NotOpenedError(OSError):
    """The process or the machine has no descriptor or memory left to open a file."""


@contextmanager
def opened(path: Path, flags: int, mode: int = 0o644) -> Iterator[int]:
    """Open a file and close it at the end; raises `NotOpenedError`."""
    handle = open_descriptor(path, flags, mode)
    try:
        yield handle
    finally:
        os.close(handle)
        hold_spares()


def open_descriptor(path: Path, flags: int, mode: int = 0o644) -> int:
    """Open a file that the caller closes; raises `NotOpenedError`."""
    return with_spare(lambda: os.open(path, flags | BINARY, mode))


def with_spare(act: Callable[[], T]) -> T:
    """Do something that needs a descriptor, with a spare one if necessary."""
    while True:
        try:
            return act()
        except OSError as error:
            if error.errno in _NONE_LEFT and _give_one_up():
                continue
            if error.errno in _CANNOT_OPEN and not isinstance(error, NotOpenedError):
                raise NotOpenedError(error.errno, error.strerror, error.filename) from error
            raise


def hold_spares() -> None:
    """Hold back spare descriptors, as many as there are."""
    if len(_held) >= SPARE_DESCRIPTORS:
        return
    with _changing:
        try:
            while len(_held) < SPARE_DESCRIPTORS:
                _held.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:  # when some are free again
            pass


def _give_one_up() -> bool:
    with _changing:
        if not _held:
            return False
        os.close(_held.pop())
        return True
