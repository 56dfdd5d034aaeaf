"""File descriptors: how many the process may have, and a few spare ones for the files of the store.

Rules kept here:
- The limit is a number that connections can use up. A store that cannot open a file then must not stop: some
  descriptors are held back, and given up for the moment that a file has to be open.
- A file that could not be opened is a `NotOpenedError`. Nothing was done to the file, so trying again later
  is right; a sync that fails for any other reason must never be tried again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar

T = TypeVar("T")

SPARE_DESCRIPTORS: Final = 16
"""How many are held back: one for each thread of a store that may want a file at the same time, and some."""

_NONE_LEFT: Final = (errno.EMFILE, errno.ENFILE)
_CANNOT_OPEN: Final = (*_NONE_LEFT, errno.ENOMEM)

_changing = Lock()
_held: list[int] = []


class NotOpenedError(OSError):
    """A file could not be opened because the process or the machine has no descriptor or memory left."""


@contextmanager
def opened(path: Path, flags: int, mode: int = 0o644) -> Iterator[int]:
    """A descriptor of a file, closed in the end; raises `NotOpenedError` if there is none to be had."""
    handle = open_descriptor(path, flags, mode)
    try:
        yield handle
    finally:
        os.close(handle)
        hold_spares()


def open_descriptor(path: Path, flags: int, mode: int = 0o644) -> int:
    """The same for one that the caller closes."""
    return with_spare(lambda: os.open(path, flags, mode))


def with_spare(act: Callable[[], T]) -> T:
    """Do something that needs a descriptor, if need be with a spare one."""
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
    """Have the spare descriptors held back, as far as they can be had."""
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
